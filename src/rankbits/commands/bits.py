"""Commands that make bits: fit and encode."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from tqdm import tqdm

from rankbits import _check
from rankbits._check import refuse
from rankbits._option import option
from rankbits.data.arrays import read_array, read_columns
from rankbits.quantizers import Quantizer, chosen
from rankbits.types import Codes

ROWS = 1 << 16


def read_labels(path: str | None, columns: dict[str, np.ndarray], rows: int) -> np.ndarray | None:
    """Labels of their own file, or those that lie beside the embeddings."""
    if path is not None:
        found = read_columns(path, "labels")
        if "labels" not in found:
            _check.refuse(f"{path} holds no array called 'labels'.")
        return _check.labels(f"labels in {path}", found["labels"], rows)
    return _check.labels("labels", columns["labels"], rows) if "labels" in columns else None


def read_both(path: str) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """The embeddings of a file, and all its arrays by name."""
    columns = read_columns(path)
    return read_array(path) if "embeddings" not in columns else columns["embeddings"], columns


def encoded(quantizer: Quantizer, embeddings: Any) -> Codes:
    """Codes of any number of rows, with a bar on a terminal."""
    packed = np.zeros((len(embeddings), (quantizer.bits_ + 7) // 8), np.uint8)
    with tqdm(total=len(embeddings), unit=" rows", desc="encode", disable=None) as bar:
        for start in range(0, len(embeddings), ROWS):
            part = quantizer.encode(embeddings[start : start + ROWS])
            packed[start : start + len(part)] = part.packed
            bar.update(len(part))
    return Codes(packed, quantizer.bits_)


@dataclass(frozen=True)
class Fit:
    """Learn to turn embeddings into bits, and print an account of what the bits lose."""

    name: ClassVar[str] = "fit"
    places: ClassVar[tuple[str, ...]] = ("embeddings",)

    embeddings: str | None = option(None, "the embeddings: .npy, .npz, .safetensors or .parquet")
    out: str | None = option(None, "where the quantizer is written", "o")
    bits: int | None = option(None, "bits of the codes (default: as many as dimensions)")
    labels: str | None = option(None, "labels of the rows, (n,) or multi-hot (n, C)")
    method: str = option("auto", "auto, sign, random, itq, h2q, supervised, pca or neighbours")
    seed: int = option(0, "seed of everything that is drawn")
    json: bool = option(False, "print the account as JSON")

    def work(self) -> None:
        from rankbits.account import account

        if not self.embeddings or not self.out:
            refuse("Give the embeddings and where to write: rankbits fit EMBEDDINGS -o QUANTIZER.")
        value, columns = read_both(self.embeddings)
        labels = read_labels(self.labels, columns, len(value))
        dim = value.shape[1] if value.ndim == 2 else 0
        quantizer = chosen(self.method, self.bits, dim, labels is not None, self.seed)
        print(f"fit {quantizer} on {len(value):,} x {dim}", file=sys.stderr)
        quantizer.fit(value, labels)
        lost = account(quantizer, value, seed=self.seed)
        quantizer.save(self.out)
        print(json.dumps(lost.to_dict(), indent=2) if self.json else lost)


@dataclass(frozen=True)
class Encode:
    """Turn embeddings into codes by a fitted quantizer; labels, ids and paths beside them go
    along."""

    name: ClassVar[str] = "encode"
    places: ClassVar[tuple[str, ...]] = ("quantizer", "embeddings")

    quantizer: str | None = option(None, "what rankbits fit wrote")
    embeddings: str | None = option(None, "the embeddings: .npy, .npz, .safetensors or .parquet")
    out: str | None = option(None, "where the codes are written: .npz or .safetensors", "o")
    labels: str | None = option(None, "labels to save with the codes")
    keep_embeddings: bool = option(
        False, "save the embeddings with the codes too (for --tie-break)"
    )
    ray: str | None = option(None, "encode by Ray: local, auto, host:port or ray://host:port")

    def work(self) -> None:
        from rankbits.quantizers import load

        if not self.quantizer or not self.embeddings or not self.out:
            refuse(
                "Give both files and where to write: rankbits encode QUANTIZER EMBEDDINGS -o CODES."
            )
        if Path(self.out).suffix not in (".npz", ".safetensors"):
            refuse(f"{self.out} must end in .npz or .safetensors.")
        quantizer = load(self.quantizer)
        value, columns = read_both(self.embeddings)
        labels = read_labels(self.labels, columns, len(value))
        codes = self._by_ray(quantizer, value) if self.ray else encoded(quantizer, value)
        kept = value if self.keep_embeddings else None
        codes.save(self.out, labels=labels, ids=self._ids(columns), embeddings=kept)
        print(f"{codes} -> {self.out}")

    def _ids(self, columns: dict[str, np.ndarray]) -> np.ndarray | None:
        """The ids beside the embeddings, or the paths of the images they were made of."""
        if "ids" in columns:
            return columns["ids"]
        npz = Path(self.out or "").suffix == ".npz"
        return columns.get("paths") if npz else None

    def _by_ray(self, quantizer: Quantizer, value: Any) -> Codes:
        """A file that can be mapped is read by the workers themselves."""
        from rankbits.scale import encode

        assert self.embeddings is not None and self.ray is not None
        mapped = Path(self.embeddings).suffix == ".npy"
        return encode(quantizer, self.embeddings if mapped else value, self.ray)
