"""Other machines: processors that round differently give the same bits of many rows.

With few rows in many directions H2Q and Projection end in one of several optima of nearly equal
error, and which one hangs on the last digit.

What is learned by gradients is run on them by ``make machines``.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

import machines

FIT = """
import hashlib, json, sys
import numpy as np, torch
import rankbits as rb
from rankbits.data.digits import digits

images, _ = digits()
x = images.reshape(len(images), 64)[:, 8:56].astype(np.float32)
x = x[:, x[300:].std(axis=0) > 0]
projection = rb.Projection(24).fit(x[300:])
turned = projection.transform(x)
codes = {"pca": projection.encode(x)}
for made in (rb.ITQ(), rb.H2Q(), rb.H2Q(loss="min_entry"), rb.H2Q(loss="bit_var")):
    codes[repr(made)] = made.fit(turned[300:]).encode(turned)
bits = {name: hashlib.sha256(each.packed.tobytes()).hexdigest() for name, each in codes.items()}
near = [rb.Projection(56).fit(x[300:]).objective_, rb.H2Q(loss="l1").fit(turned[300:]).objective_]
drawn = torch.randn(99, 99, generator=torch.Generator().manual_seed(0))
print(json.dumps({"bits": bits, "near": near, "rounded": float((drawn @ drawn).sum())}))
"""


@pytest.fixture(scope="module")
def found():
    """What each machine fits."""
    command = [sys.executable, "-c", FIT]
    started = {
        name: subprocess.Popen(command, env={**os.environ, **setting}, stdout=subprocess.PIPE)
        for name, setting in machines.simulated().items()
    }
    told = {name: process.communicate()[0] for name, process in started.items()}
    assert not any(process.returncode for process in started.values())
    return {name: json.loads(text) for name, text in told.items()}


def test_there_are_three_machines_and_they_round_differently(found):
    assert len(found) >= 3 or "avx2" not in machines.processor_flags()
    if {"sse", "avx2"} <= set(found):
        assert found["sse"]["rounded"] != found["avx2"]["rounded"]


def test_every_machine_gives_the_same_bits(found):
    first = next(iter(found.values()))["bits"]
    assert len(first) == 5
    for name, each in found.items():
        assert each["bits"] == first, name


def test_every_machine_finds_as_low_an_error(found):
    """More bits than dimensions, and an objective with kinks: many optima lie close together."""
    first = next(iter(found.values()))["near"]
    for each in found.values():
        assert each["near"] == pytest.approx(first, rel=0.01)


def test_a_processor_is_not_asked_for_what_it_lacks():
    old = machines.simulated({"sse2"})
    assert "avx2" not in old and not any("NPY_DISABLE_CPU_FEATURES" in s for s in old.values())
    newer = machines.simulated({"sse2", "avx2", "fma"})
    assert newer["sse"]["NPY_DISABLE_CPU_FEATURES"] == "X86_V3"
    assert "NPY_DISABLE_CPU_FEATURES" not in newer["avx2"]
    assert list(newer) == ["sse", "avx2", "native"] and "avx512" not in newer


def test_a_machine_that_fails_is_named(capfd):
    only = next(iter(machines.simulated()))
    failing = [
        sys.executable,
        "-c",
        "import os, sys; sys.exit(len(os.environ['RANKBITS_MACHINE']))",
    ]
    assert machines.main(["--only", only, *failing]) == len(only)
    assert f"0 of 1 machines agree {only}" in capfd.readouterr().out
    assert machines.main(["--only", only, sys.executable, "-c", "pass"]) == 0
    assert machines.main(["--only", "z80", "true"]) == 2
    assert machines.main(["--first", *failing]) == len(only)
    assert "this processor cannot be z80" in capfd.readouterr().out
    assert machines.main([]) == 2
