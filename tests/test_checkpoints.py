"""What a run keeps and how it is stopped: files of tensors, its log, signals, processes."""

from __future__ import annotations

import json
import shutil
import signal
import sys
import threading
import types
from pathlib import Path

import numpy as np
import pytest
import torch

import rankbits as rb
import rankbits.cli
from rankbits._files import lock_folder, write_arrays
from rankbits.data.examples import Examples
from rankbits.train.checkpoints import (
    CHECKPOINT,
    WEIGHTS,
    Progress,
    load_checkpoint,
    load_state,
    load_tensors,
    save_checkpoint,
    save_tensors,
)  # fmt: skip
from rankbits.train.embed import embed
from rankbits.train.log import LOG, Log, read_log
from rankbits.train.processes import Processes, Stop, choose_device
from rankbits.train.run import RUN, make_examples
from rankbits.train.step import Replay, batch_gradient, choose_precision, precision

X = np.random.default_rng(0).normal(size=(40, 6)).astype(np.float32)
LABELS = np.arange(40) % 4


def quiet(line):
    pass


def test_halves_come_back_as_they_were(tmp_path):
    kept = {
        "half": torch.tensor([1.5, -0.0, 3e38], dtype=torch.bfloat16),
        "whole": torch.arange(3),
        "scalar": torch.tensor(2.5),
    }
    save_tensors(tmp_path / "x.safetensors", "model", kept, {"step": 3})
    found, facts = load_tensors(tmp_path / "x.safetensors", "model")
    assert facts == {"step": 3}
    for name, value in kept.items():
        assert found[name].dtype == value.dtype and torch.equal(found[name], value)
    write_arrays(
        tmp_path / "y.safetensors", "model", {"facts": "{"}, {"a": np.ones(1)}, form=".safetensors"
    )
    with pytest.raises(rb.Refusal, match="is not a rankbits model file"):
        load_tensors(tmp_path / "y.safetensors", "model")


def test_a_state_that_does_not_fit_says_why(tmp_path):
    module, path = torch.nn.Linear(3, 2), tmp_path / "w"
    good = module.state_dict()
    for change, said in (
        ({"bias": None}, "has no 'bias': it was made with another model."),
        ({"bias": torch.zeros(5)}, r"has 'bias' of shape \(5,\), but the model's has \(2,\)."),
        ({"more": torch.zeros(1)}, "has 'more', which the model does not have."),
    ):
        given = {n: t for n, t in {**good, **change}.items() if t is not None}
        with pytest.raises(rb.Refusal, match=said):
            load_state(module, given, path)


class Counted(torch.optim.SGD):
    """An optimiser that keeps a plain number and a None beside its tensors."""

    def step(self):
        super().step()
        for group in self.param_groups:
            for p in group["params"]:
                self.state[p]["times"] = self.state[p].get("times", 0) + 1
                self.state[p]["nothing"] = None


def test_an_optimisers_plain_numbers_are_kept(tmp_path):
    def make_both():
        torch.manual_seed(0)
        model = torch.nn.Linear(3, 2)
        return model, Counted(model.parameters(), 0.1, momentum=0.9)

    model, optimiser = make_both()
    for _ in range(3):
        model(torch.ones(1, 3)).sum().backward()
        optimiser.step()
    loss = torch.nn.Module()
    save_checkpoint(tmp_path, model, loss, optimiser, Progress(step=3), {"more": 1})
    again, fresh = make_both()
    progress, facts = load_checkpoint(tmp_path, again, loss, fresh)
    assert progress == Progress(step=3) and facts["more"] == 1
    assert torch.equal(again.weight, model.weight)
    for one, two in zip(optimiser.state.values(), fresh.state.values(), strict=True):
        assert two["times"] == 3 and "nothing" not in two
        assert torch.equal(one["momentum_buffer"], two["momentum_buffer"])


RUNS = Path(__file__).parent / "runs"


def test_a_run_from_before_settings_had_groups_loads_and_goes_on(tmp_path):
    """``runs/hyp2`` was written at commit e1e7bd2: proxies, a memory, 6 of 20 steps."""
    folder = tmp_path / "run"
    shutil.copytree(RUNS / "hyp2", folder)
    run = rb.load_run(folder)
    wanted = [[-0.19412, -0.13954, 0.03085, -0.19078], [-0.26899, -0.16862, 0.07646, 0.14770]]
    outputs = run.embed(np.eye(6, dtype=np.float32)[:2]).embeddings
    np.testing.assert_allclose(outputs[:, :4], wanted, atol=1e-4)
    assert run.config.loss == "hyp2" and run.config.preset is None and run.progress.step == 6
    own = Examples(np.tile(np.eye(3, 6, dtype=np.float32), (20, 1)), np.arange(60) % 3)
    said: list[str] = []
    config = run.config.with_changes(out=str(folder), steps=0)
    again = rb.train(config, examples=own, say=said.append)
    assert f"going on from step 6 of {folder}" in said and again.progress.step == 16
    with pytest.raises(rb.Refusal, match=r"was made with lr = 0\.05, not 0\.5"):
        rb.train(config, examples=own, lr=0.5, say=quiet)


def test_the_log_forgets_what_is_past_the_checkpoint(tmp_path):
    rows = [{"step": s, "loss": s / 2} for s in range(4)]
    text = "".join(json.dumps(row) + "\n" for row in rows)
    (tmp_path / LOG).write_text(text + '{"step": 4, "lo')
    assert read_log(tmp_path) == rows and read_log(tmp_path, 1) == rows[:2]
    log = Log(tmp_path)
    log.open(1)
    log.write({"step": 2, "loss": 9.0})
    assert read_log(tmp_path) == [*rows[:2], {"step": 2, "loss": 9.0}]


def test_tensorboard_is_told_every_number(tmp_path, monkeypatch):
    told, made = [], []

    class SummaryWriter:
        def __init__(self, folder, purge_step):
            made.append((folder, purge_step))

        def add_scalar(self, *scalar):
            told.append(scalar)

        def close(self):
            made.append("closed")

    module = types.ModuleType("torch.utils.tensorboard")
    module.SummaryWriter = SummaryWriter
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", module)
    log = Log(tmp_path, tensorboard=True)
    log.open(5)
    log.write({"step": 6, "epoch": 1, "loss": 0.5})
    log.close()
    log.close()
    assert told == [("loss", 0.5, 6)]
    assert made == [(str(tmp_path / "tensorboard"), 6), "closed"]
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    log.open(6)
    assert log.writer is None


def test_signals_are_heard_in_the_main_thread_only():
    before = signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)
    for number, why in ((signal.SIGTERM, "SIGTERM"), (signal.SIGINT, "Ctrl-C")):
        stop = Stop()
        with stop.listen():
            signal.raise_signal(number)
            assert stop.why == why
            with pytest.raises(KeyboardInterrupt):
                signal.raise_signal(signal.SIGINT)
        assert (signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)) == before
    heard = []

    def elsewhere():
        with Stop().listen():
            heard.append(signal.getsignal(signal.SIGTERM) == before[0])

    thread = threading.Thread(target=elsewhere)
    thread.start()
    thread.join()
    assert heard == [True]


def test_a_process_alone_is_the_first_of_one():
    alone = Processes.join(torch.device("cpu"))
    assert (alone.rank, alone.world, alone.find_first(7)) == (0, 1, 0)
    assert alone.any(True) and not alone.any(False)
    norm = torch.nn.BatchNorm1d(3)
    alone.average_buffers(norm)
    alone.wait()
    assert torch.equal(norm.running_var, torch.ones(3))


def test_devices_that_are_not_there(monkeypatch):
    assert choose_device("cpu") == torch.device("cpu")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert choose_device("auto") == torch.device("cpu")
    with pytest.raises(rb.Refusal, match="'cuda:1' was asked for, but torch finds no CUDA device"):
        choose_device("cuda:1")
    with pytest.raises(rb.Refusal, match="device must be 'auto', 'cpu', 'cuda' or 'cuda:N'"):
        choose_device("tpu?")


def test_half_precision_is_judged_in_full():
    """Embeddings of autocast are bfloat16; the loss sees float32, and the gradient fits."""
    torch.manual_seed(0)
    model, x, cpu = torch.nn.Linear(6, 4), torch.from_numpy(X), torch.device("cpu")
    seen = []

    def embed(start, stop):
        with precision("bf16", cpu):
            return model(x[start:stop])

    def loss(z):
        seen.append(z.dtype)
        return z.square().mean()

    _, z = batch_gradient(embed, 40, loss, Replay(model, 0), chunk=16)
    assert seen == [torch.float32] and z.dtype == torch.float32
    wanted = torch.autograd.grad(model(x).square().mean(), model.weight)[0]
    torch.testing.assert_close(model.weight.grad, wanted, rtol=0.05, atol=0.01)
    assert choose_precision("bf16", cpu) == "bf16" and choose_precision("auto", cpu) == "off"


def test_a_batch_of_nothing_has_no_gradient():
    model, unused = torch.nn.Linear(6, 4), torch.ones(2, requires_grad=True)
    value, z = batch_gradient(
        lambda a, b: model(torch.zeros(b - a, 6)), 0, lambda z: z.sum(), Replay(model, 0),
        own=[unused],
    )  # fmt: skip
    assert value == 0 and z.shape == (0, 4)
    assert model.weight.grad is None and unused.grad is None


def test_runs_that_cannot_be_read(tmp_path):
    own = Examples(X, LABELS)
    out = tmp_path / "run"
    rb.train(examples=own, bits=4, epochs=1, batch_size=16, out=str(out), say=quiet)
    (out / WEIGHTS).rename(out / "kept")
    with pytest.raises(rb.Refusal, match=r"has no weights yet .* at the first validation"):
        rb.load_run(out)
    (out / "kept").rename(out / WEIGHTS)
    facts = json.loads((out / RUN).read_text())
    facts["inputs"] = {"colour": "red"}
    (out / RUN).write_text(json.dumps(facts))
    with pytest.raises(rb.Refusal, match="is damaged or not a run's description"):
        rb.load_run(out)
    assert (out / CHECKPOINT).is_file()


def test_what_is_no_image_is_not_embedded(tmp_path):
    (tmp_path / "a.png").write_bytes(b"no image")
    files = make_examples(str(tmp_path / "a.png"))
    assert len(files) == 1 and files.kind == "files"
    with pytest.raises(rb.Refusal, match="Images need a View"):
        embed(torch.nn.Identity(), files, None)
    with pytest.raises(rb.Refusal, match="The examples must not be empty; got 0 rows"):
        embed(torch.nn.Identity(), Examples(X[:0], LABELS[:0]), None)
    labelled = Examples(files.inputs, np.zeros(1, np.int64))
    with pytest.raises(rb.Refusal, match="None of the first 1 images can be read: "):
        rb.train(examples=labelled, validation=0, epochs=1, say=quiet)


def train_on(inputs, labels, folder, **changes):
    own = Examples(inputs, labels)
    return rb.train(examples=own, bits=4, say=quiet, out=str(folder), **({"epochs": 1} | changes))


def test_a_run_does_not_go_on_with_other_data(tmp_path):
    train_on(X, LABELS, tmp_path / "run")
    other = X.copy()
    other[7, 3] += 1
    for inputs, labels in ((other, LABELS), (X, (LABELS + 1) % 4), (X[:36], LABELS[:36])):
        with pytest.raises(rb.Refusal, match="was trained on other data; give those, or another"):
            train_on(inputs, labels, tmp_path / "run", epochs=2)
    assert train_on(X.copy(), LABELS, tmp_path / "run", epochs=2).progress.epoch == 2


def test_one_training_in_a_folder_at_a_time(tmp_path):
    folder = tmp_path / "run"
    folder.mkdir()
    stale = folder / ".checkpoint.safetensors.abcd1234.rankbits-unfinished"
    stale.write_bytes(b"half")
    with lock_folder(folder), pytest.raises(rb.Refusal, match="Another process is writing to"):
        train_on(X, LABELS, folder)
    assert stale.exists() and not (folder / RUN).exists()
    assert train_on(X, LABELS, folder).progress.finished
    assert not stale.exists()


def test_files_of_brackets_without_end_are_refused(tmp_path, capsys):
    deep = "[" * 200_000
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / RUN).write_text(deep)
    with pytest.raises(rb.Refusal, match="is damaged or not a run's description"):
        rb.load(tmp_path / "run")
    (tmp_path / "run" / LOG).write_text(f"{deep}\n" + '{"step": 1}\n')
    assert read_log(tmp_path / "run") == [{"step": 1}]
    for text in (f"bits = {deep}", "bits = " + "9" * 5000, "bits = \ud800", "a = {b = 1, b = 2}"):
        (tmp_path / "run.toml").write_text(text, "utf-8", "surrogatepass")
        assert rb.cli.main(["train", str(tmp_path / "run.toml")]) == 1
        said = capsys.readouterr().err
        assert said.startswith("rankbits: ") and "is not TOML" in said
