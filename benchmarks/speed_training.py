"""How fast a training step is compared with the bare network, and what large batches cost.

A step of the trainer (gather images from memory, send, augment, embed, loss, optimiser) is compared
with a bare forward and backward pass of the same network on a batch that is already on the device,
and with steps in two passes. The memory of each is measured too.

    python benchmarks/speed_training.py --save           # EfficientNet-lite0 at 224 on a GPU,
                                                         # the small network at 32 on a CPU
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import replace
from itertools import product

import numpy as np
import torch

from _bench import Bench, compare, peak_cuda
from rankbits.data.examples import Examples
from rankbits.data.loading import Batch, Loader
from rankbits.data.samplers import make_sampler
from rankbits.losses.named import make_loss
from rankbits.train import TrainConfig
from rankbits.train.loop import Trainer
from rankbits.train.memory import BatchLoss
from rankbits.train.processes import Processes
from rankbits.train.run import Run, build_model, choose_inputs

BITS = 32
CLASSES = 16  # a balanced batch of 128 or 256 is whole


def made(config: TrainConfig, examples: Examples, device: torch.device) -> Trainer:
    inputs = choose_inputs(examples, config)
    run = Run(build_model(config, inputs), config, inputs)
    batches = make_sampler("auto", examples.labels, None, config.batch_size)
    loss = make_loss(config.loss, config.width, examples.labels, **(config.options or {}))
    return Trainer(run, examples, None, batches, BatchLoss(loss), Processes(device))


def endless(trainer: Trainer) -> Iterator[Batch]:
    """The trainer's own loader, epoch after epoch."""
    epoch = 0
    while True:
        yield from Loader(trainer.train, trainer.sampler.at(epoch), device=trainer.device)
        epoch += 1


def stepper(trainer: Trainer):  # type: ignore[no-untyped-def]
    batches = endless(trainer)

    def step() -> None:
        trainer.take_step(next(batches), 0)
        trainer.unchecked.clear()

    return step


def bare(trainer: Trainer):  # type: ignore[no-untyped-def]
    """Forward and backward of the same network in the same mode, and nothing else."""
    side, channels = trainer.run.inputs.side, trainer.run.inputs.channels
    x = torch.rand(trainer.config.batch_size, channels, side, side, device=trainer.device)
    if trainer.device.type == "cuda":
        x = x.contiguous(memory_format=torch.channels_last)
    slope = torch.randn(len(x), trainer.config.width, device=trainer.device)
    trainer.model.train()

    def step() -> None:
        trainer.model.zero_grad(set_to_none=not trainer.config.graphs)
        z = trainer.network(x)
        z.backward(slope.to(z.dtype))

    return step


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--save", action="store_true", help="append rows to results/")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--models", nargs="*", default=["efficientnet-lite0", "resnet50"])
    parser.add_argument("--sizes", nargs="*", type=int, default=[128, 256])
    options = parser.parse_args()
    cuda = torch.cuda.is_available()
    device = torch.device("cuda" if cuda else "cpu")
    name = "speed_training_cuda" if cuda else "speed_training_cpu"
    bench = Bench(name, threads=torch.get_num_threads(), seed=options.seed)

    draw = np.random.default_rng(options.seed)
    images = draw.integers(0, 256, (5000, 32, 32, 3), np.uint8)
    examples = Examples(images, np.arange(len(images)) % CLASSES)
    models = options.models if cuda else ["conv"]
    for model, size in product(models, options.sizes if cuda else [256]):
        settings = {"model": model, "bits": BITS, "augment": "crop", "seed": options.seed}
        peers = {}
        config = TrainConfig(loss="tie-aware-ap", batch_size=size, **settings)
        peers["bare forward-backward"] = bare(made(config, examples, device))
        peers["step, tie-aware-ap"] = stepper(made(config, examples, device))
        config = replace(config, chunk=size // 4)
        peers["step, tie-aware-ap, 4 chunks"] = stepper(made(config, examples, device))
        if cuda:
            graphed = replace(config, graphs=True)
            peers["step, tie-aware-ap, 4 chunks, graphs"] = stepper(made(graphed, examples, device))
            graphed = replace(graphed, chunk=None)
            peers["step, tie-aware-ap, graphs"] = stepper(made(graphed, examples, device))
            peers["bare forward-backward, graphs"] = bare(made(graphed, examples, device))
            compiled = replace(graphed, compile=True)
            peers["step, tie-aware-ap, compiled, graphs"] = stepper(
                made(compiled, examples, device)
            )
        timings = compare(peers, work=size, unit="images", seconds=0.4 if cuda else 2.0, cuda=cuda)
        amp = made(config, examples, device).amp
        title = f"{model}, batches of {size}, amp {amp}"
        beside = ("bare forward-backward", *(["bare forward-backward, graphs"] if cuda else []))
        bench.report(title, timings, beside, amp=amp)
    if cuda:
        model, chunk = models[0], 128
        settings["model"] = model
        for size in (128, 512, 2048):
            row = {}
            for label, part in (("one pass", None), ("chunks of 128", chunk)):
                trainer = made(
                    TrainConfig(loss="fastap", batch_size=size, chunk=part, **settings),
                    examples, device,
                )  # fmt: skip
                step = stepper(trainer)
                step()
                row[label] = round(peak_cuda(step) / 1e6, 1)
            bench.note(f"peak memory of a step, {model}, batch {size} (MB)", **row)
    if options.save:
        bench.save()


if __name__ == "__main__":
    main()
