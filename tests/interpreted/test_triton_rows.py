"""Rows and views in Triton are those of plain torch."""

from __future__ import annotations

import pytest
import torch

from rankbits.data.augment import MOVED, View
from rankbits.kernels import scale_rows, scale_rows_backward


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("dim", [1, 37, 48, 1100])
@pytest.mark.parametrize("alpha", [None, 0.3])
def test_rows_and_their_gradient(in_triton, dtype, dim, alpha):
    seeded = torch.Generator().manual_seed(dim)
    x, gradient = (torch.randn(3, dim, generator=seeded, dtype=dtype) for _ in range(2))
    x[1] = 0

    def scale() -> tuple[torch.Tensor, torch.Tensor]:
        rows = scale_rows(x, alpha)
        return rows, scale_rows_backward(gradient, x, rows, alpha, torch.tensor(0.7, dtype=dtype))

    with in_triton():
        computed = scale()
    for ours, plain in zip(computed, scale(), strict=True):
        torch.testing.assert_close(ours, plain)


@pytest.mark.parametrize("kind", MOVED)
@pytest.mark.parametrize("stored", [1, 3])
@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize(("side", "size"), [(8, (8, 8)), (30, (9, 14))])
def test_views(in_triton, kind, stored, channels, side, size):
    seeded = torch.Generator().manual_seed(side)
    images = torch.randint(0, 256, (3, *size, stored), generator=seeded, dtype=torch.uint8)
    view = View(side, channels, kind)
    drawn = view.draw(3, 1)
    with in_triton():
        seen = view.see_changed(images, drawn)
    torch.testing.assert_close(seen, view.see_changed(images, drawn), rtol=0, atol=1e-4)
