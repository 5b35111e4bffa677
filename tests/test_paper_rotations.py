"""The rotations that H2Q's authors ran, beside ours."""

from __future__ import annotations

import numpy as np
import pytest

from rankbits.papers.recipe import QUANTIZERS
from rankbits.papers.rotations import fit_quantizer, measure_error


@pytest.fixture(scope="module")
def embeddings():
    """Rows near 40 of the signs of 8 bits, rotated, and of unequal lengths."""
    draw = np.random.default_rng(0)
    signs = draw.choice([-1.0, 1.0], (40, 8))[draw.integers(40, size=200)]
    turn, _ = np.linalg.qr(draw.normal(size=(8, 8)))
    rows = (signs + 0.2 * draw.normal(size=(200, 8))) @ turn
    return (rows * draw.uniform(1, 3, size=(200, 1))).astype(np.float32)


@pytest.mark.parametrize("name", [name for name in QUANTIZERS if name != "none"])
def test_every_name_gives_an_orthogonal_rotation(name, embeddings):
    quantizer = fit_quantizer(name, embeddings, np.arange(200) % 5, seed=0)
    turn = quantizer.weight_.double().numpy()
    assert np.allclose(turn @ turn.T, np.eye(8), atol=1e-4)


def test_the_authors_port_of_itq_finds_nothing_and_itq_does(embeddings):
    def fit_error(name: str) -> float:
        return measure_error(fit_quantizer(name, embeddings, None, seed=1), embeddings)

    chance = fit_error("random")
    assert fit_error("itq-port") > 0.8 * chance
    assert fit_error("itq-raw") < 0.3 * chance
    assert fit_error("h2q-sgd") < 0.3 * chance


def test_the_error_is_of_unit_rows():
    assert measure_error(None, np.array([[5.0, -5.0]], np.float32)) == pytest.approx(0)
    assert measure_error(None, np.array([[1.0, 0.0]], np.float32)) == pytest.approx(
        ((2**0.5 - 1) ** 2 + 1) / 2
    )
