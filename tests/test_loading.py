"""Batches read ahead, images decoded once, files that do not decode left out by name; views."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading

import numpy as np
import pytest
import torch
from PIL import Image

import rankbits as rb
from rankbits import Refusal
from rankbits.data.augment import KINDS, View
from rankbits.data.examples import Examples
from rankbits.data.images import ImageFiles
from rankbits.data.loading import Loader, Pixels, batch_in_order


@pytest.fixture
def folder(tmp_path):
    """Six pictures of two classes, one of them no picture."""
    draw = np.random.default_rng(0)
    for i in range(6):
        where = tmp_path / "pictures" / "ab"[i % 2]
        where.mkdir(parents=True, exist_ok=True)
        pixels = draw.integers(0, 256, (20, 24, 3), "u1")
        Image.fromarray(pixels).save(where / f"{i}.png")
    (tmp_path / "pictures" / "a" / "4.png").write_bytes(b"no picture")
    return tmp_path / "pictures"


def test_arrays_come_in_the_samplers_order():
    examples = Examples(np.arange(20.0, dtype=np.float32).reshape(10, 2), np.arange(10))
    order = [[3, 1], [9, 0, 2], []]
    batches = list(Loader(examples, order))
    assert [batch.rows.tolist() for batch in batches] == order
    assert batches[1].inputs.tolist() == [[18, 19], [0, 1], [4, 5]]
    assert batches[1].labels.tolist() == [9, 0, 2] and batches[1].planned == 3
    assert batch_in_order(5, 2) == [[0, 1], [2, 3], [4]]


def test_reading_ahead_stops_with_the_reader_and_passes_errors_on():
    examples = Examples(np.zeros((4, 1), np.float32), np.zeros(4))
    before = threading.active_count()
    loader = iter(Loader(examples, [[0]] * 1000))
    next(loader)
    loader.close()
    assert threading.active_count() == before
    with pytest.raises(IndexError):
        list(Loader(examples, [[0], [99]]))


@pytest.mark.parametrize("workers", [0, 2])
def test_files_that_do_not_decode_leave_the_batch_by_name(folder, tmp_path, workers):
    examples = rb.data.read_examples(folder)
    loader = Loader(
        examples, [[0, 1, 2], [3, 4, 5]], side=8, workers=workers, cache=tmp_path / "cache"
    )
    batches = list(loader)
    bad = [i for i, p in enumerate(examples.inputs.paths) if p.endswith("4.png")]
    assert list(loader.failed) == bad and "4.png" in loader.failed[bad[0]]
    assert sum(len(batch) for batch in batches) == 5 and [b.planned for b in batches] == [3, 3]
    for batch in batches:
        assert batch.inputs.shape == (len(batch), 8, 8, 3)
        assert (batch.places < 3).all() and len(batch.places) == len(batch)
        torch.testing.assert_close(batch.labels, torch.from_numpy(examples.labels)[batch.rows])


def test_all_unreadable_is_a_refusal(tmp_path):
    paths = []
    for i in range(3):
        (tmp_path / f"{i}.png").write_bytes(b"nothing")
        paths.append(str(tmp_path / f"{i}.png"))
    examples = Examples(ImageFiles(np.array(paths)), np.zeros(3))
    with pytest.raises(Refusal, match="None of the first 3 images can be read"):
        list(Loader(examples, [[0, 1, 2]], side=8))


def test_pixels_are_decoded_once(folder, tmp_path, monkeypatch):
    from rankbits.data import loading

    files = rb.data.read_examples(folder).inputs
    first = [Pixels(files, 8, 3, tmp_path / "cache")[i][1] for i in range(6)]
    monkeypatch.setattr(loading, "decode", lambda *a: pytest.fail("decoded again"))
    again = Pixels(files, 8, 3, tmp_path / "cache")
    for i, image in enumerate(first):
        if image is not None:
            np.testing.assert_array_equal(again[i][1], image)
    monkeypatch.undo()
    path = str(files.paths[0])
    Image.new("RGB", (30, 30), (9, 9, 9)).save(path)  # another picture: another cache
    assert (Pixels(files, 8, 3, tmp_path / "cache")[0][1] == 9).all()


def test_a_folder_with_a_bad_picture_trains_and_embeds(folder, tmp_path):
    draw = np.random.default_rng(1)
    for i in range(40):
        shade = draw.integers(0, 100) + 150 * (i % 2)
        Image.new("L", (20, 20), int(shade)).save(folder / "ab"[i % 2] / f"x{i}.png")
    said: list[str] = []
    run = rb.train(
        data=str(folder), out=str(tmp_path / "run"), root=str(tmp_path / "root"), bits=8,
        epochs=2, batch_size=16, side=16, workers=0, say=said.append,
    )  # fmt: skip
    assert any("1 images are left out" in line and "4.png" in line for line in said)
    examples = rb.load_run(tmp_path / "run").embed(rb.data.read_examples(folder))
    assert examples.embeddings.shape == (45, 8) and len(examples.failed) == 1
    assert run.progress.finished


@pytest.mark.parametrize("augment", KINDS)
@pytest.mark.parametrize("side", [16, 100])
def test_views_keep_shape_and_range(augment, side):
    images = torch.from_numpy(np.random.default_rng(0).integers(0, 256, (5, 30, 30, 3), "u1"))
    view = View(side, 3, augment)
    for seen in (view.see_centre(images), view.see_changed(images, view.draw(5, 1))):
        assert seen.shape == (5, 3, side, side)
        assert float(seen.min()) >= 0 and float(seen.max()) <= 1
    assert view.see_changed(images[:0], view.draw(5, 1)[:0]).shape[0] == 0


def test_a_flip_is_a_mirror_and_a_shift_moves():
    images = torch.from_numpy(np.random.default_rng(0).integers(0, 256, (64, 16, 16, 1), "u1"))
    view = View(16, 1, "flip")
    drawn = view.draw(64, 3)
    plain, seen = view.see_centre(images), view.see_changed(images, drawn)
    mirrored = drawn[:, 0] < 0.5
    assert 10 < int(mirrored.sum()) < 54
    torch.testing.assert_close(seen[mirrored], plain[mirrored].flip(3))
    torch.testing.assert_close(seen[~mirrored], plain[~mirrored])
    blob = torch.zeros(200, 32, 32, 1, dtype=torch.uint8)
    blob[:, 14:18, 14:18] = 255
    moved = View(32, 1, "shift").see_changed(blob, View(32, 1, "shift").draw(200, 0))
    places = (moved * torch.arange(32)).sum((1, 2, 3)) / moved.sum((1, 2, 3))
    assert float(places.min()) < 12.5 and float(places.max()) > 18.5  # up to an eighth either way
    assert float((places - 15.5).abs().max()) <= 4.1


def test_grey_and_colour_meet():
    grey = torch.full((1, 4, 4, 1), 100, dtype=torch.uint8)
    assert View(4, 3).see_centre(grey).shape == (1, 3, 4, 4)
    colour = torch.zeros(1, 4, 4, 3, dtype=torch.uint8)
    colour[..., 1] = 255
    torch.testing.assert_close(View(4, 1).see_centre(colour), torch.full((1, 1, 4, 4), 0.587))


def test_a_cache_that_cannot_be_had_is_none(folder, tmp_path):
    files = rb.data.read_examples(folder).inputs
    (tmp_path / "file").write_text("no folder")
    plain = Pixels(files, 8, 3, tmp_path / "file" / "cache")
    assert plain.kept is None and len(plain) == len(files) == 6
    np.testing.assert_array_equal(plain[0][1], Pixels(files, 8, 3)[0][1])
    missing = ImageFiles(np.array([str(folder / "gone.png")]))
    row, pixels, said = Pixels(missing, 8, 3, tmp_path / "cache")[0]
    assert row == 0 and pixels is None and "gone.png" in said


def test_examples_say_how_many_classes_they_have():
    hot = np.array([[1, 0, 0], [1, 0, 1]], bool)
    assert Examples(np.zeros((2, 1), np.float32), hot).classes == 2
    text = repr(Examples(np.zeros((2, 1), np.float32), [0, 1], [4, 4]))
    assert "2 features, 2 classes" in text and "1 categor" in text
    with pytest.raises(Refusal, match="labels"):
        Examples(np.zeros((2, 1), np.float32), np.zeros((2, 2, 2)))


GROUP_KILLED = """
import sys
from multiprocessing import active_children
from multiprocessing.connection import wait
import torch
from rankbits.cli import main
from rankbits.train.memory import BatchLoss

steps = 0

def wait_for_the_signal(module, _):
    global steps
    if isinstance(module, BatchLoss):
        steps += 1
        if steps == 2:
            workers = [worker.sentinel for worker in active_children()]
            print("at step 2", flush=True)
            sys.stdin.readline()
            assert wait(workers, 1) == []  # a worker that the signal ends has ended by then

torch.nn.modules.module.register_module_forward_pre_hook(wait_for_the_signal)
settings = {"model": "conv", "side": 16, "bits": 4, "workers": 1, "batch_size": 4, "device": "cpu"}
options = [word for name, value in settings.items() for word in (f"--{name}", str(value))]
main(["train", sys.argv[1], "-o", sys.argv[2], *[o.replace("_", "-") for o in options]])
"""


@pytest.mark.skipif(not hasattr(os, "killpg"), reason="needs process groups")
def test_sigterm_to_the_whole_group_keeps_a_checkpoint(tmp_path):
    """As ``timeout 45 rankbits train`` sends it: the workers hear the signal too."""
    draw = np.random.default_rng(0)
    for i in range(80):
        where = tmp_path / "pictures" / "ab"[i % 2]
        where.mkdir(parents=True, exist_ok=True)
        Image.fromarray(draw.integers(0, 256, (8, 8, 3), "u1")).save(where / f"{i}.png")
    out = tmp_path / "run"
    process = subprocess.Popen(
        [sys.executable, "-c", GROUP_KILLED, str(tmp_path / "pictures"), str(out)],
        start_new_session=True,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "RANKBITS_DATA": str(tmp_path / "data")},
    )
    assert process.stdout is not None and process.stdout.readline() == "at step 2\n"
    os.killpg(process.pid, signal.SIGTERM)
    said = process.communicate("go on\n", timeout=300)[1]
    assert "Traceback" not in said
    assert "SIGTERM: saved at step 2" in said
    assert process.returncode == -signal.SIGTERM
    assert (out / "checkpoint.safetensors").is_file()
