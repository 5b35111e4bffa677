"""Commands that make bits: fit and encode."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from rankbits import _check
from rankbits._check import refuse
from rankbits._option import DEVICE, option
from rankbits._progress import Meter, print_line
from rankbits.data.arrays import read_array, read_columns
from rankbits.data.items import Items
from rankbits.data.labels import read_labels_file
from rankbits.data.tables import TABLES, is_table
from rankbits.data.texts import SUFFIXES
from rankbits.models.sentences import MINILM
from rankbits.quantizers import Quantizer, make_quantizer
from rankbits.types import Codes

if TYPE_CHECKING:
    from rankbits.account import Curve
    from rankbits.encoder import Encoder

ROWS = 1 << 16


def read_labels(path: str | None, columns: dict[str, np.ndarray], rows: int) -> Any:
    """Read labels from a file of their own, or take those beside the embeddings."""
    if path is not None:
        labels = read_labels_file(path)
        _check.same_length(f"labels in {path}", len(labels), "the rows", rows)
        return labels
    return columns.get("labels")


def read_embeddings(path: str) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Read the embeddings of a file, and all its arrays by name."""
    columns = read_columns(path)
    return columns["embeddings"] if "embeddings" in columns else read_array(path), columns


def encode_rows(quantizer: Quantizer, embeddings: Any) -> Codes:
    """Encode rows in parts, and show how far that has come."""
    packed = np.zeros((len(embeddings), (quantizer.bits_ + 7) // 8), np.uint8)
    with Meter("encode", len(embeddings), "rows") as meter:
        for start in range(0, len(embeddings), ROWS):
            part = quantizer.encode(embeddings[start : start + ROWS])
            packed[start : start + len(part)] = part.packed
            meter.update(len(part))
    return Codes(packed, quantizer.bits_, quantizer.fingerprint)


@dataclass(frozen=True)
class Fit:
    """Fit an encoder that turns embeddings or texts into bits, and measure what the bits lose."""

    name: ClassVar[str] = "fit"
    places: ClassVar[tuple[str, ...]] = ("embeddings",)

    embeddings: str | None = option(
        None,
        "embeddings (.npy, .npz, .safetensors, .parquet), or texts: a folder of .txt, or a .jsonl, "
        ".csv, .tsv or .parquet with a column text",
    )
    out: str | None = option(None, "the encoder's folder", "o")
    bits: int | None = option(None, "bits of the codes (default: as many as dimensions)")
    labels: str | None = option(None, "a file of labels, (n,) or multi-hot (n, C)")
    method: str = option(
        "auto",
        "auto, reconstruct (for float questions), pca, neighbours, sign, random, itq, h2q, "
        "supervised, classes, bre, fasthash, structhash or machash",
    )
    model: str = option(MINILM, "for texts: a sentence model's folder, or its name on the hub")
    column: str | None = option(
        None, "for texts: the columns to read, as in title,text (default: text)"
    )
    seed: int = option(0, "seed of all random choices")
    device: str = option("auto", f"for texts: {DEVICE}")
    curve: bool = option(
        True, "measure on a sample the share of neighbours that other sizes of codes keep"
    )
    json: bool = option(False, "print the measurements as JSON")

    def work(self) -> None:
        from rankbits.account import account

        if not self.embeddings or not self.out:
            refuse("Give the embeddings and where to write: rankbits fit EMBEDDINGS -o ENCODER.")
        if self.column or is_texts(Path(self.embeddings)):
            encoder, value = self._fit_texts(self.embeddings)
        else:
            encoder, value = self._fit_embeddings(self.embeddings)
        assert encoder.quantizer is not None
        lost = account(encoder.quantizer, value, seed=self.seed)
        encoder.save(self.out)
        curve = self._measure_curve(value) if self.curve else None
        if self.json:
            facts = lost.to_dict() | ({} if curve is None else {"curve": curve.to_dict()})
            print(json.dumps(facts, indent=2))
        else:
            print(lost, *(() if curve is None else (curve,)), sep="\n")

    def _measure_curve(self, embeddings: Any) -> Curve | None:
        """Measure what other sizes keep; None where the rows are too few or too alike."""
        from rankbits.account import LEAST_ROWS, measure_bytes

        if len(embeddings) < LEAST_ROWS:
            return None
        print("measure what other sizes of codes keep (--no-curve skips this)", file=sys.stderr)
        try:
            return measure_bytes(embeddings, seed=self.seed)
        except _check.Refusal as sentence:
            print(f"not measured: {sentence}", file=sys.stderr)
            return None

    def _fit_embeddings(self, source: str) -> tuple[Encoder, np.ndarray]:
        """Fit an encoder of embeddings -> the encoder and the embeddings."""
        from rankbits.encoder import Encoder

        value, columns = read_embeddings(source)
        labels = read_labels(self.labels, columns, len(value))
        dim = value.shape[1] if value.ndim == 2 else 0
        quantizer = make_quantizer(self.method, self.bits, dim, labels is not None, self.seed)
        print(f"fit {quantizer} on {len(value):,} x {dim}", file=sys.stderr)
        return Encoder.of(quantizer.fit(value, labels)), value

    def _fit_texts(self, source: str) -> tuple[Encoder, np.ndarray]:
        """Fit an encoder of texts -> the encoder and the embeddings of the texts."""
        from rankbits.encoder import fit_texts

        labels = None if self.labels is None else read_labels_file(self.labels)
        encoder = fit_texts(
            Path(source), labels, bits=self.bits, model=self.model,
            columns=split_columns(self.column), device=self.device,
            method=self.method, seed=self.seed,
        )  # fmt: skip
        return encoder, encoder.embed_readable(Path(source)).embeddings


def split_columns(names: str | None) -> list[str]:
    """Split the value of ``--column`` into the names of columns."""
    return [name.strip() for name in (names or "").split(",") if name.strip()]


def is_texts(source: Path) -> bool:
    """Say whether a file or folder holds texts, and not embeddings."""
    if source.is_dir() or source.suffix.lower() in SUFFIXES:
        return True
    return source.suffix in TABLES and source.is_file() and is_table(source)


@dataclass(frozen=True)
class Encode:
    """Turn inputs into codes with an encoder; labels and ids are saved too."""

    name: ClassVar[str] = "encode"
    places: ClassVar[tuple[str, ...]] = ("encoder", "inputs")

    encoder: str | None = option(None, "what rankbits train or fit wrote")
    inputs: str | None = option(
        None, "a folder of images or texts, a table, or vectors: .npy, .npz, .safetensors, .parquet"
    )
    out: str | None = option(None, "the file of codes to write: .npz or .safetensors", "o")
    labels: str | None = option(None, "a file of labels, which are saved with the codes")
    keep_embeddings: bool = option(
        False, "save the embeddings with the codes too (for --tie-break)"
    )
    ray: str | None = option(None, "use a Ray cluster: local, auto, host:port or ray://host:port")
    device: str = option("auto", DEVICE)

    def work(self) -> None:
        from rankbits.encoder.files import load_encoder
        from rankbits.encoder.indexing import read_inputs

        if not self.encoder or not self.inputs or not self.out:
            refuse("Give all three: rankbits encode ENCODER INPUTS -o CODES.")
        if Path(self.out).suffix not in (".npz", ".safetensors"):
            refuse(f"{self.out} must end in .npz or .safetensors.")
        encoder = load_encoder(self.encoder, device=self.device)
        items = read_inputs(encoder, self.inputs)
        labels = self._read_labels(items)
        codes, rows, embeddings = self._encode(encoder, items)
        codes.save(
            self.out,
            labels=None if labels is None else labels[rows],
            ids=self._choose_ids(items.ids[rows]),
            embeddings=embeddings if self.keep_embeddings else None,
        )
        print(f"{codes} -> {self.out}")

    def _encode(self, encoder: Encoder, items: Items) -> tuple[Codes, np.ndarray, np.ndarray]:
        """Encode the items -> the codes, the rows that could be read, and their embeddings."""
        from rankbits.encoder.fitting import tell_left_out

        if encoder.network is None and isinstance(items.inputs, np.ndarray):
            assert encoder.quantizer is not None
            encode = self._encode_by_ray if self.ray else encode_rows
            return encode(encoder.quantizer, items.inputs), np.arange(len(items)), items.inputs
        if self.ray:
            refuse(f"--ray encodes vectors; this encoder reads {encoder.describe_inputs()}.")
        embedded = encoder.embed_readable(items, progress=True)
        tell_left_out(embedded, encoder.network, print_line)
        codes = encoder.encode_embeddings(embedded.embeddings)
        return codes, embedded.rows, embedded.embeddings

    def _read_labels(self, items: Items) -> Any:
        """Read the labels, as names where the file can hold names: two folders may number the same
        names differently."""
        if self.labels is not None:
            return read_labels(self.labels, {}, len(items))
        if items.labels is None or items.labels.ndim == 2 or not items.names:
            return items.labels
        if Path(self.out or "").suffix != ".npz" or (items.labels < 0).any():
            return items.labels
        return np.array(items.names)[items.labels]

    def _choose_ids(self, ids: np.ndarray) -> np.ndarray | None:
        """Choose the ids to save: none if they number the rows, or the file holds no strings."""
        if ids.dtype != object:
            return None if np.array_equal(ids, np.arange(len(ids))) else ids
        return ids.astype(str) if Path(self.out or "").suffix == ".npz" else None

    def _encode_by_ray(self, quantizer: Quantizer, vectors: Any) -> Codes:
        """Encode on a Ray cluster; the workers read an .npy file themselves."""
        from rankbits.scale import encode

        assert self.inputs is not None and self.ray is not None
        by_workers = Path(self.inputs).suffix == ".npy"
        return encode(quantizer, self.inputs if by_workers else vectors, self.ray)
