"""Idle threads of torch sleep soon, unless the user says otherwise."""

import os
import subprocess
import sys

import pytest

from rankbits._threads import CHOSEN_BY_USER, SPINS


@pytest.mark.parametrize(
    ("first", "given", "spins"),
    [
        ("", {}, SPINS),
        ("", {"OMP_WAIT_POLICY": "ACTIVE"}, None),
        ("", {"GOMP_SPINCOUNT": "7"}, "7"),
        ("import torch; ", {}, None),  # torch has read it already
    ],
)
def test_idle_threads_sleep_unless_the_user_chose(first, given, spins):
    usual = {name: value for name, value in os.environ.items() if name not in CHOSEN_BY_USER}
    code = f"{first}import os, rankbits; print(os.environ.get('GOMP_SPINCOUNT'))"
    words = [sys.executable, "-c", code]
    said = subprocess.check_output(words, env=usual | given, text=True)
    assert said.strip() == str(spins)
