"""Training: it learns, it survives, it is the same run whatever happens to it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

import rankbits as rb
from rankbits import Refusal, TrainConfig
from rankbits.cli import main
from rankbits.data.digits import digits
from rankbits.data.examples import Examples
from rankbits.losses.named import LOSSES
from rankbits.train.checkpoints import CHECKPOINT, WEIGHTS, load_tensors
from rankbits.train.log import LOG
from rankbits.train.memory import BatchLoss
from rankbits.train.validation import Validation
from unmeasured import UNMEASURED


def quiet(line: str) -> None:
    pass


@pytest.fixture(scope="module")
def own() -> Examples:
    images, labels = digits()
    return Examples(images[:600].reshape(600, 64).astype(np.float32) / 16, labels[:600])


@pytest.fixture
def terminated():
    """The SIGTERMs that this process hears of, which would end it."""
    heard: list[int] = []
    before = signal.signal(signal.SIGTERM, lambda number, _: heard.append(number))
    yield heard
    signal.signal(signal.SIGTERM, before)


@pytest.fixture(scope="module")
def pictures() -> Examples:
    images, labels = digits()
    return Examples((images[:300, :, :, None] * 15).astype("u1"), labels[:300])


def weights(folder: Path) -> dict[str, torch.Tensor]:
    return load_tensors(folder / WEIGHTS, "model")[0]


def same(one: dict[str, torch.Tensor], two: dict[str, torch.Tensor]) -> bool:
    return one.keys() == two.keys() and all(torch.equal(one[n], two[n]) for n in one)


SETTINGS = {"bits": 12, "epochs": 3, "batch_size": 64, "lr": 0.01, "say": quiet}


@pytest.mark.learned
@pytest.mark.parametrize("loss", [*LOSSES, "pml:ContrastiveLoss"])
def test_every_loss_learns_and_repeats(own, loss):
    """Above the mAP of the untrained network, and the same to the last bit when run again."""
    start = rb.train(examples=own, loss=loss, **SETTINGS | {"epochs": 1, "lr": 1e-9})
    longer = SETTINGS | {"epochs": 8}
    runs = [rb.train(examples=own, loss=loss, **longer) for _ in range(2)]
    assert runs[0].progress.best > start.progress.best
    assert same(*(run.model.state_dict() for run in runs))
    assert [row.get("loss") for row in runs[0].history] == [
        row.get("loss") for row in runs[1].history
    ]


@pytest.mark.parametrize("chunk", [None, 24])
def test_a_compiled_network_is_trained_in_every_step(own, chunk, monkeypatch):
    """Compiled by the backend that only traces, so the weights are the same to the last bit."""
    compiled, traced = torch.compile, []

    def trace(graph, inputs):
        traced.append(inputs[0].shape)
        return graph.forward

    def compile_plainly(model, *, options, **rest):
        assert options == {"fallback_random": True}
        return compiled(model, backend=trace, **rest)

    monkeypatch.setattr(torch, "compile", compile_plainly)
    settings = SETTINGS | {"chunk": chunk, "epochs": 1, "hidden": 8, "dropout": 0.2}
    runs = [rb.train(examples=own, compile=c, **settings) for c in (False, True)]
    assert traced
    assert same(*(run.model.state_dict() for run in runs))


@pytest.mark.learned
def test_fastap_embeddings_are_judged_by_cosine(own):
    run = rb.train(examples=own, loss="fastap", dim=16, epochs=3, batch_size=64, lr=0.01, say=quiet)
    assert run.config.head == "embedding" and run.progress.best > 0.6
    assert run.embed(own.inputs[:7]).embeddings.shape == (7, 16)


class Network(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = torch.nn.Sequential(torch.nn.Linear(64, 32), torch.nn.ReLU())
        self.drop = torch.nn.Dropout(0.2)
        self.head = torch.nn.Linear(32, 12)

    def forward(self, x):
        return self.head(self.drop(self.body(x)))


def make_network() -> torch.nn.Module:
    torch.manual_seed(5)
    return Network()


@pytest.mark.learned
def test_own_module_and_own_loss(own, tmp_path):
    def loss(z, labels):
        return rb.fastap_loss(z, labels) + 0.01 * z.square().mean()

    out = str(tmp_path / "run")
    run = rb.train(examples=own, model=make_network(), loss=loss, out=out, **SETTINGS)
    assert run.progress.best > 0.4
    with pytest.raises(Refusal, match="your own network; give it as model"):
        rb.load_run(out)
    back = rb.load_run(out, Network())
    np.testing.assert_array_equal(
        back.embed(own.inputs[:5]).embeddings, run.embed(own.inputs[:5]).embeddings
    )


def test_the_callers_random_numbers_are_left_alone(own):
    torch.manual_seed(3)
    wanted = torch.rand(3)
    torch.manual_seed(3)
    rb.train(examples=own, **SETTINGS | {"epochs": 1})
    torch.testing.assert_close(torch.rand(3), wanted, rtol=0, atol=0)


@pytest.mark.parametrize(
    "options",
    [
        {"chunk": 20, "memory": 100, "optimizer": "sgd", "schedule": "cosine", "warmup": 0.2},
        {"loss": "hyp2", "loss_multiple": 10, "hswd": 0.1, "schedule": "step", "step_epochs": 1},
        {"loss": "hashnet", "weight_decay": 1e-3, "clip": 0.5},
        {"loss": "adsh", "head_multiple": 3},
        {"continuation": "grow", "alpha_end": 10, "patience": 2},
    ],
    ids=["chunks", "proxies", "hashnet", "adsh", "alpha"],
)
def test_a_stopped_run_goes_on_bit_for_bit(own, tmp_path, options, terminated):
    """Stop by SIGTERM from inside, after a number of steps; the rest is as if nothing happened."""
    settings = SETTINGS | {"log_every": 1} | options
    model = {} if "loss" in options else {"model": "own"}
    made = (lambda: {"model": make_network()}) if model else (lambda: {})
    whole = rb.train(examples=own, out=str(tmp_path / "whole"), **made(), **settings)
    steps = whole.progress.step
    parts = 0
    for stop in (2, steps // 2, None):
        count = 0

        def loss_hook(module, arguments, stop=stop):
            nonlocal count
            count += 1
            if stop is not None and count == stop:
                os.kill(os.getpid(), signal.SIGTERM)

        handle = torch.nn.modules.module.register_module_forward_pre_hook(
            lambda module, args, hook=loss_hook: (
                hook(module, args) if type(module).__name__ == "BatchLoss" else None
            )
        )
        said: list[str] = []
        try:
            run = rb.train(
                examples=own, out=str(tmp_path / "parts"), **made(),
                **settings | {"say": said.append},
            )  # fmt: skip
        finally:
            handle.remove()
        parts += count
        if stop is not None:
            assert not run.progress.finished
            assert any("SIGTERM: saved at step" in line for line in said)
    assert len(terminated) == 2  # whoever listened before hears of it, once each
    assert run.progress.finished and parts == steps
    assert same(weights(tmp_path / "whole"), weights(tmp_path / "parts"))
    rows = [(tmp_path / name / LOG).read_text().splitlines() for name in ("whole", "parts")]
    for one, two in zip(*rows, strict=True):
        one, two = json.loads(one), json.loads(two)
        assert {n: v for n, v in one.items() if "second" not in n} == {
            n: v for n, v in two.items() if "second" not in n
        }


KILLED = """
import os, pathlib, random, signal, struct, sys
sys.path.insert(0, sys.argv[2])
import torch
torch.set_num_threads(1)
import rankbits as rb
from test_train import Examples, SETTINGS, make_network, digits, np
from rankbits.train.log import Log
images, labels = digits()
own = Examples(images[:600].reshape(600, 64).astype(np.float32) / 16, labels[:600])
folder = pathlib.Path(sys.argv[1])
settings = SETTINGS | {"checkpoint_minutes": 0.0, "log_every": 1, "epochs": 4, "chunk": 25,
                       "memory": 50, "tensorboard": False}
# what every child would load anew: the kernels, and the compiler that comes with an optimiser
rb.evaluate(rb.pack(own.inputs[:9] - 0.5), rb.pack(own.inputs - 0.5), labels[:9], labels[:600])
torch.optim.Adam(make_network().parameters())

def attempt(name, lines=None):
    '''Train in a process of its own; kill it soon after its log has so many lines.'''
    ours, theirs = os.pipe()
    pid = os.fork()
    if pid == 0:
        write = Log.write
        def told(log, row):
            write(log, row)
            os.write(theirs, struct.pack("I", len(log.rows)))
            if lines is not None and len(log.rows) >= lines + 4:
                signal.pause()  # a busy machine may be late with its kill, and the run must not end
        Log.write = told
        rb.train(examples=own, model=make_network(), out=str(folder / name), **settings)
        os._exit(0)
    os.close(theirs)
    with open(ours, "rb", 0) as pipe:
        while count := pipe.read(4):
            if lines is not None and struct.unpack("I", count)[0] >= lines:
                for _ in range(random.randrange(30_000)):
                    pass
                os.kill(pid, signal.SIGKILL)
                break
    return os.waitpid(pid, 0)[1]

assert attempt("whole") == 0
random.seed(7)
for cut in range(10):
    assert attempt("killed", 1 + 3 * cut + random.randrange(3)) == signal.SIGKILL
assert attempt("killed") == 0
"""


def test_ten_kills_change_nothing(tmp_path):
    """kill -9 at ten random moments of one run, checkpoints included: the weights are the same."""
    done = subprocess.run(
        [sys.executable, "-c", KILLED, str(tmp_path), str(Path(__file__).parent)],
        capture_output=True, text=True, timeout=300, env=UNMEASURED,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    assert same(weights(tmp_path / "whole"), weights(tmp_path / "killed"))
    assert not [p for p in (tmp_path / "whole").iterdir() if p.name.startswith(".")]


def train_spread(out: Path, loss: str) -> None:
    """Train with dropout, memory, proxies, the hard sampler and a last layer that starts at
    principal components, in one process or several."""
    images, labels = digits()
    x, labels = images[:600].reshape(600, 64).astype(np.float32) / 16, labels[:600]
    rb.train(
        examples=Examples(x, labels, labels // 5), model=make_network(), loss=loss, out=str(out),
        **SETTINGS | {"log_every": 1, "chunk": 32, "batch_size": 64, "sampler": "hard",
                      "memory": 40, "last_layer": "principal"},
    )  # fmt: skip


SPREAD = ("fastap", "hyp2")


@pytest.fixture(scope="module")
def both(tmp_path_factory):
    """The runs of two processes, started once because that takes longer than the training."""
    folder = tmp_path_factory.mktemp("spread")
    script = folder / "spread.py"
    script.write_text(
        "import sys\nfrom pathlib import Path\nimport torch\nsys.path.insert(0, sys.argv[2])\n"
        "torch.set_num_threads(1)\nfrom test_train import SPREAD, train_spread\n"
        "for loss in SPREAD:\n    train_spread(Path(sys.argv[1], loss), loss)\n"
    )
    done = subprocess.run(
        [sys.executable, "-m", "torch.distributed.run", "--nproc_per_node", "2", "--master_port",
         "0", "--rdzv_backend", "c10d", "--rdzv_endpoint", "localhost:0", str(script), str(folder),
         str(Path(__file__).parent)],
        capture_output=True, text=True, timeout=300,
        env=os.environ | {"OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    return folder


@pytest.mark.parametrize("loss", SPREAD)
def test_two_processes_are_one(tmp_path, both, loss):
    """Losses and weights equal those of one process."""
    train_spread(tmp_path / "one", loss)
    one, two = weights(tmp_path / "one"), weights(both / loss)
    for name in one:
        torch.testing.assert_close(one[name], two[name], rtol=1e-6, atol=1e-6)
    logs = []
    for folder in (tmp_path / "one", both / loss):
        rows = [json.loads(line) for line in (folder / LOG).read_text().splitlines()]
        logs.append([row["loss"] for row in rows if "loss" in row])
    assert len(logs[0]) > 10
    np.testing.assert_allclose(*logs, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_no_shell_goes_on_after_a_run_that_was_stopped(own, tmp_path, number, terminated, capsys):
    np.savez(tmp_path / "own.npz", features=own.inputs, labels=own.labels)
    hook = torch.nn.modules.module.register_module_forward_pre_hook(
        lambda module, _: signal.raise_signal(number) if isinstance(module, BatchLoss) else None
    )
    try:
        out = tmp_path / "run"
        assert main(["train", "--data", str(tmp_path / "own.npz"), "-o", str(out)]) == 130
    finally:
        hook.remove()
    assert "saved at step 1; the same command goes on from there" in capsys.readouterr().err
    assert terminated == [number] * (number == signal.SIGTERM)


def test_a_loss_that_is_no_number_stops_with_a_sentence(own, tmp_path):
    calls = []

    def bad(z, labels):
        calls.append(1)
        return z.sum() * (float("nan") if len(calls) == 5 else 1.0)

    out = str(tmp_path / "run")
    with pytest.raises(Refusal, match=r"The loss is nan at step 5; .*last good checkpoint"):
        rb.train(
            examples=own, model=make_network(), loss=bad, out=out,
            **SETTINGS | {"checkpoint_minutes": 0.0},
        )  # fmt: skip
    tensors, facts = load_tensors(Path(out) / CHECKPOINT, "checkpoint")
    assert facts["progress"]["step"] == 4
    assert all(torch.isfinite(t).all() for t in tensors.values() if t.is_floating_point())


def test_patience_ends_a_run_and_the_best_weights_stay(own):
    run = rb.train(examples=own, **SETTINGS | {"epochs": 50, "lr": 3.0, "patience": 2})
    assert run.progress.epoch < 50 and run.progress.worse == 2
    held = [row["validation_mAP"] for row in run.history if "validation_mAP" in row]
    assert run.progress.best == max(held)
    rows = rb.train(
        examples=own, **SETTINGS | {"epochs": 1}
    ).config  # the split comes from the seed
    train, held_rows = rb.data.split_own(own, rows.validation, rows.seed)
    judge = Validation(own.subset(train), own.subset(held_rows), binary=True)
    judged = judge.judge(run.model, None, torch.device("cpu"))
    assert judged.figures["mAP"] == judged.chosen == run.progress.best


@pytest.mark.parametrize("error", [torch.OutOfMemoryError, RuntimeError, MemoryError])
def test_full_memory_is_told_in_a_sentence(own, error):
    def fill(z, labels):
        raise error("CUDA error: out of memory. " + "Process 1 has 3 GiB. " * 40)

    words = r"The memory of (cpu|cuda.*) is full: a step holds 64 .*, with chunk = 32 it holds half"
    with pytest.raises(Refusal, match=words):
        rb.train(examples=own, loss=fill, **SETTINGS | {"batch_size": 64})


def test_other_errors_of_a_loss_stay(own):
    def break_down(z, labels):
        raise RuntimeError("shapes differ")

    with pytest.raises(RuntimeError, match="shapes differ"):
        rb.train(examples=own, loss=break_down, **SETTINGS)


@pytest.mark.learned
def test_images_with_augmentation(pictures):
    run = rb.train(
        examples=pictures, model="conv", side=16, augment="shift", bits=12, epochs=2, lr=0.003,
        batch_size=64, say=quiet,
    )  # fmt: skip
    assert run.inputs.side == 16 and run.inputs.channels == 1
    found = run.embed(pictures.inputs[:4]).embeddings
    assert found.shape == (4, 12) and run.progress.best > 0.2


def test_a_frozen_body_stays_and_its_head_learns_with_dropout(pictures):
    settings = SETTINGS | {"model": "conv", "side": 16, "epochs": 2, "freeze": True}
    start = rb.train(examples=pictures, **settings | {"epochs": 0})
    runs = [rb.train(examples=pictures, dropout=share, **settings) for share in (0.0, 0.5)]
    for run in runs:
        assert same(run.model.backbone.state_dict(), start.model.backbone.state_dict())
        assert not same(run.model.head.state_dict(), start.model.head.state_dict())
    assert not same(*(run.model.head.state_dict() for run in runs))


def test_an_mlp_is_as_wide_as_said(own):
    longer = SETTINGS | {"model": "mlp", "hidden": 48, "epochs": 15}
    run = rb.train(examples=own, dropout=0.2, **longer)
    start = rb.train(examples=own, dropout=0.2, **longer | {"epochs": 1, "lr": 1e-9})
    assert run.model.backbone.features == 48
    assert run.progress.best > start.progress.best + 0.2


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"bits": 8, "dim": 8}, "Give bits .a hash layer. or dim"),
        ({"lr": 0}, "lr must be above 0; got 0"),
        ({"lr": float("nan")}, "lr must be a finite number"),
        ({"batch_size": 1}, "batch_size must be a whole number of at least 2"),
        ({"optimizer": "adm"}, "optimizer must be one of .*did you mean 'adam'"),
        ({"schedule": "cos"}, "schedule must be one of"),
        ({"validation": 1.0}, "validation is a share below 1"),
        ({"dropout": 1.0}, "dropout is a share below 1"),
        ({"dropout": -0.1}, "dropout must not be negative"),
        ({"hidden": 0}, "hidden must be a whole number of at least 1"),
        ({"epoch": 3}, "TrainConfig has no 'epoch' .did you mean 'epochs'"),
        ({"loss": "fastapp"}, "loss must be one of .*did you mean 'fastap'"),
        ({"loss": "cel", "options": {"detla": 1}}, "Loss 'cel' has no option 'detla'"),
        (
            {"loss": "pml:FastApLoss"},
            "There is no loss 'pml:FastApLoss' .did you mean 'FastAPLoss'",
        ),
        ({"device": "gpu"}, "device must be"),
        ({"model": "resnet5"}, "did you mean 'resnet50'"),
        ({"sampler": "hardest"}, "sampler must be one of"),
        ({"checkpoint_minutes": -1}, "checkpoint_minutes must not be negative"),
    ],
)
def test_bad_settings_are_refused(own, changes, sentence):
    with pytest.raises(Refusal, match=sentence):
        rb.train(examples=own, say=quiet, **{"epochs": 1} | changes)


def test_a_folder_holds_one_run(own, tmp_path):
    out = str(tmp_path / "run")
    settings = SETTINGS | {"epochs": 1}
    rb.train(examples=own, out=out, **settings)
    with pytest.raises(Refusal, match=r"was made with lr = 0.01, not 0.02; give another folder"):
        rb.train(examples=own, out=out, **settings | {"lr": 0.02})
    said: list[str] = []
    again = rb.train(examples=own, out=out, **settings | {"say": said.append})
    assert again.progress.finished and "is finished" in said[-1]
    more = rb.train(examples=own, out=out, **settings | {"epochs": 2})
    assert more.progress.epoch == 2
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "letter.txt").write_text("dear")
    with pytest.raises(Refusal, match="is not empty and holds no run"):
        rb.train(examples=own, out=str(tmp_path / "other"), **settings)
    with pytest.raises(Refusal, match="is a file; a run needs a folder"):
        rb.train(examples=own, out=str(tmp_path / "other" / "letter.txt"), **settings)
    with pytest.raises(Refusal, match=r"is not a run: it has no run\.json"):
        rb.load_run(tmp_path / "other")


@pytest.mark.parametrize("name", [CHECKPOINT, WEIGHTS, "run.json"])
def test_damaged_files_of_a_run_are_refused(own, tmp_path, name):
    out = tmp_path / "run"
    rb.train(examples=own, out=str(out), **SETTINGS | {"epochs": 1})
    data = bytearray((out / name).read_bytes())
    (out / name).write_bytes(data[: len(data) // 2])
    with pytest.raises(Refusal, match=r"damaged|not a"):
        rb.load_run(out) if name != CHECKPOINT else rb.train(
            examples=own, out=str(out), **SETTINGS | {"epochs": 2}
        )
    data[-3] ^= 16
    (out / name).write_bytes(data)
    if name != "run.json":
        with pytest.raises(Refusal, match="checksum"):
            rb.load_run(out) if name == WEIGHTS else rb.train(
                examples=own, out=str(out), **SETTINGS | {"epochs": 2}
            )


def test_embed_refuses_what_the_run_was_not_made_for(own, pictures):
    run = rb.train(examples=own, **SETTINGS | {"epochs": 1})
    with pytest.raises(Refusal, match="trained on features; got images"):
        run.embed(pictures)
    with pytest.raises(Refusal, match="must have the run's 64 features; got 5"):
        run.embed(np.ones((2, 5), np.float32))


def test_config_tells_every_field_with_its_help():
    import dataclasses

    for field in dataclasses.fields(TrainConfig):
        assert field.metadata["help"], field.name
    assert TrainConfig().width == 64 and TrainConfig(dim=3).head == "embedding"
