"""The orthogonal group: the nearest rotation, and solvers that search for a good one.

With rows f of norm sqrt(k) and y = U f, the quantization error, mean over rows and bits of (y -
sgn y)^2, is 2 - 2 mean|y|: lowering it means raising the L1 norm. For fixed signs B the best U is
the polar factor of B'F (Procrustes), which changes the signs again. ITQ repeats these steps and
climbs monotonically to the nearest of many local optima.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch

Objective = Callable[[torch.Tensor], torch.Tensor]
"""Rotated rows (n, k) -> the mean loss, a scalar."""


def polar(matrix: torch.Tensor) -> torch.Tensor:
    """The matrix with orthonormal rows (or columns) nearest to ``matrix``: U V' of its SVD.

    Near a rotation all singular values are nearly 1, where LAPACK's divide and conquer very rarely
    fails in single precision; then double precision is used.
    """
    try:
        left, _, right = torch.linalg.svd(matrix, full_matrices=False)
    except torch.linalg.LinAlgError:
        left, _, right = torch.linalg.svd(matrix.double(), full_matrices=False)
    return (left @ right).to(matrix.dtype)


def random_rotation(size: int, draw: torch.Generator, dtype: torch.dtype) -> torch.Tensor:
    """Draw uniformly from the orthogonal group: QR of a Gaussian matrix, R made positive."""
    q, r = torch.linalg.qr(torch.randn(size, size, generator=draw, dtype=torch.float64))
    return (q * r.diagonal().sign()).to(dtype)


def procrustes_step(rows: torch.Tensor, rotation: torch.Tensor) -> torch.Tensor:
    """One step of ITQ: signs by the rotation, then the best rotation for these signs."""
    return polar(torch.sign(rows @ rotation.T).T @ rows)


def climb(rows: torch.Tensor, rotation: torch.Tensor, steps: int = 12) -> torch.Tensor:
    """Accelerated ITQ: signs are taken a little beyond the rotation, in the direction it moved.

    A dozen of these steps do the work of hundreds of plain ones. Momentum may overshoot, so the
    start is returned if the end is not better.
    """
    start, before = rotation, rotation
    for _ in range(steps):
        ahead = rotation + 0.9 * (rotation - before)
        before, rotation = rotation, procrustes_step(rows, ahead)
    rotation = procrustes_step(rows, rotation)
    return max((start, rotation), key=lambda u: float((rows @ u.T).abs().mean()))


def anneal(
    rows: torch.Tensor,
    rotation: torch.Tensor,
    draw: torch.Generator,
    steps: int = 80,
    batch: int = 3072,
) -> torch.Tensor:
    """Accelerated ITQ on batches, with soft signs tanh(beta y) that harden: finds a good start.

    A small beta smooths the L1 norm, so that its optima are few and wide, and the noise of batches
    leaves poor ones; ``climb`` continues from there.
    """
    before = rotation
    for step in range(steps):
        part = rows[torch.randint(len(rows), (min(batch, len(rows)),), generator=draw)]
        ahead = rotation + 0.9 * (rotation - before)
        soft = torch.tanh(30.0 ** (step / steps) * (part @ ahead.T))
        before, rotation = rotation, polar(soft.T @ part)
    return rotation


def descend(
    rows: torch.Tensor, rotation: torch.Tensor, objective: Objective, steps: int
) -> torch.Tensor:
    """Riemannian gradient descent with backtracking: the objective never rises.

    The gradient is projected onto the tangent space and the step retracted by the polar factor.
    """
    size = 1.0
    value = float(objective(rows @ rotation.T))
    for _ in range(steps):
        moved = rotation.clone().requires_grad_()
        (gradient,) = torch.autograd.grad(objective(rows @ moved.T), moved)
        skew = gradient @ rotation.T
        tangent = (skew - skew.T) @ rotation / 2
        norm = float(tangent.norm())
        if norm < 1e-12:
            break
        improved = False
        while size * norm > 1e-9:
            trial = polar(rotation - size * tangent)
            now = float(objective(rows @ trial.T))
            if now < value - 1e-4 * size * norm**2:
                improved = (value - now) > 1e-9 * abs(value)
                rotation, value, size = trial, now, size * 2
                break
            size /= 2
        if not improved:
            break
    return rotation


def householder_product(vectors: torch.Tensor) -> torch.Tensor:
    """H_1 H_2 .. H_k of the columns v_i, H = I - 2 v v'/|v|^2, in one compact WY product.

    I - V T V' with T the inverse of (V'V above the diagonal + half its diagonal).
    """
    inner = vectors.T @ vectors
    triangle = inner.triu(1) + torch.diag(inner.diagonal() / 2)
    identity = torch.eye(len(vectors), dtype=vectors.dtype, device=vectors.device)
    return identity - vectors @ torch.linalg.solve_triangular(triangle, vectors.T, upper=True)


def descend_householder(
    rows: torch.Tensor,
    objective: Objective,
    draw: torch.Generator,
    *,
    epochs: int,
    rate: float,
    optimizer: str,
    batch: int = 128,
    validation: float = 0.1,
) -> torch.Tensor:
    """The H2Q paper's procedure: gradient steps on Householder vectors; the best epoch on held-out
    rows is returned."""
    size = rows.shape[1]
    order = torch.randperm(len(rows), generator=draw)
    held_out = rows[order[: max(1, math.ceil(validation * len(rows)))]]
    rest = rows[order[len(held_out) :]] if len(rows) > len(held_out) else rows
    vectors = torch.eye(size, dtype=rows.dtype).requires_grad_()
    kinds = {"sgd": torch.optim.SGD, "adam": torch.optim.Adam}
    steps = kinds[optimizer]([vectors], lr=rate)  # type: ignore[operator]
    best, least = householder_product(vectors).detach(), float("inf")
    for _ in range(epochs):
        for part in torch.randperm(len(rest), generator=draw).split(batch):
            steps.zero_grad()
            objective(rest[part] @ householder_product(vectors).T).backward()
            steps.step()
        with torch.no_grad():
            rotation = householder_product(vectors)
            value = float(objective(held_out @ rotation.T))
        if value < least:
            best, least = rotation.clone(), value
    return polar(best)
