"""The first two minutes: hash the embedded digits, and see what ties can do to a number."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from rankbits import _check
from rankbits.data.digits import digits
from rankbits.evaluate import evaluate
from rankbits.kernels import hamming
from rankbits.types import Codes, Report, pack

if TYPE_CHECKING:
    from rankbits.serve import Service

BITS = (8, 16, 32, 48)
QUERIES = 300
SHUFFLES = 20


def quickstart(
    folder: str | Path, *, bits: int = 16, seed: int = 0, say: Callable[[str], object] = print
) -> Report:
    """Hash 1,797 digits by the signs of their principal components, judge the codes, and write the
    labelled codes and an HTML report into ``folder``."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    images, labels = digits()
    inputs = torch.from_numpy(images.reshape(len(images), -1)).double()
    query, database = _split(len(inputs), seed)
    components = _principal(inputs[database])
    lengths = sorted({*BITS, _check.whole("bits", bits, 1)})
    if lengths[-1] > components.shape[1]:
        _check.refuse(f"bits must be at most {components.shape[1]} here; got {bits}.")

    say(
        f"{len(query)} digits as queries, {len(database):,} as database, hashed by the signs of "
        "their principal components.\n"
        f"A tie-blind script reports another mAP after each of {SHUFFLES} shuffles of the database:"
        "\n\n  bits   tie-aware mAP   ties could make it   a tie-blind script, shuffled"
    )
    centred = inputs - inputs[database].mean(0)
    kept = None
    for length in lengths:
        codes = pack(centred @ components[:, :length])
        pair = codes[query], codes[database], labels[query], labels[database]
        report = evaluate(*pair, k=(10, 100))
        figure = report.figures["mAP"]
        blind = [tie_blind_map(*pair, np.random.default_rng(s)) for s in range(SHUFFLES)]
        say(
            f"  {length:4d}   {figure.value:.4f}          {figure.worst:.4f} to {figure.best:.4f}"
            f"     {min(blind):.4f} to {max(blind):.4f}"
        )
        if length == bits:
            kept = (codes, report)
    assert kept is not None
    codes, report = kept
    for name, rows in (("queries", query), ("database", database)):
        codes[rows].save(folder / f"{name}.npz", labels=labels[rows])
    report.to_html(folder / "report.html")
    say(f"\nThe report at {bits} bits:\n\n{report}\n")
    say(
        f"Look at it:        {folder / 'report.html'}\n"
        f"Judge it yourself: rankbits evaluate {folder / 'queries.npz'} {folder / 'database.npz'}"
    )
    return report


def digits_service(report: Report, *, bits: int = 16, seed: int = 0) -> Service:
    """The database digits as a service: with images, labels, a comparison and the report.

    Ids are the digits' numbers in the whole set; an uploaded image is seen at 8 x 8, dark on light
    or light on dark.
    """
    from rankbits.indexes import HammingIndex
    from rankbits.serve import Encoder, Items, Service, compared

    images, labels = digits()
    inputs = torch.from_numpy(images.reshape(len(images), -1)).double()
    database = _split(len(inputs), seed)[1]
    mean, components = inputs[database].mean(0), _principal(inputs[database])[:, :bits]

    def encode(vectors: np.ndarray) -> Codes:
        return pack((torch.from_numpy(vectors).double() - mean) @ components)

    items = Items(
        database,
        titles=[f"digit {number}" for number in database],
        labels=labels[database],
        images=(images[database] * np.float32(255 / 16)).astype(np.uint8),
    )
    features = inputs[database].numpy()
    return Service(
        HammingIndex(bits).add(encode(features), database),
        encoder=Encoder(encode, lambda file: encode(_seen(file)), dims=(64,), bits=bits),
        items=items,
        compare=compared(features, labels[database], bits=bits, ids=database),
        report=report.to_dict(),
    )


def _seen(file: Any) -> np.ndarray:
    """An image as a digit, (1, 64) from 0 to 16, its ink the brighter."""
    from rankbits.data.images import decode

    grey = decode(file, 64, channels=1).astype(np.float64).reshape(8, 8, 8, 8).mean(axis=(1, 3))
    edge = np.concatenate([grey[0], grey[-1], grey[:, 0], grey[:, -1]])
    ink = 255 - grey if np.median(edge) > 127 else grey
    return np.rint(ink * 16 / 255).reshape(1, 64)


def _split(rows: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows that ask and rows that are found."""
    order = np.random.default_rng(seed).permutation(rows)
    return order[:QUERIES], order[QUERIES:]


def _principal(inputs: torch.Tensor) -> torch.Tensor:
    """Directions of falling variance as columns; constant inputs give none."""
    _, values, directions = torch.linalg.svd(inputs - inputs.mean(0), full_matrices=False)
    return directions[values > 1e-9 * values[0]].T


def tie_blind_map(
    query_codes: Codes,
    database_codes: Codes,
    query_labels: np.ndarray,
    database_labels: np.ndarray,
    shuffle: np.random.Generator,
) -> float:
    """What most hashing scripts compute: sort by distance, ties wherever the sort left them."""
    order = shuffle.permutation(len(database_codes))
    distances = hamming(query_codes, database_codes[order])
    found = []
    for row, label in zip(distances, query_labels, strict=True):
        relevant = (database_labels[order] == label)[np.argsort(row)]
        places = np.flatnonzero(relevant) + 1
        found.append(np.mean(np.arange(1, len(places) + 1) / places))
    return float(np.mean(found))
