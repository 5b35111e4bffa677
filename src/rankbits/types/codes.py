"""Codes: n rows of bits, packed eight to a byte."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from rankbits import _check
from rankbits._files import read_arrays, read_kind, write_arrays

FINGERPRINT = re.compile("[0-9a-f]{16}")


@dataclass(frozen=True, eq=False, repr=False)
class Codes:
    """Binary codes: ``packed`` is uint8 (n, ceil(bits/8)), first bit highest, pad bits zero.

    The byte layout is that of ``numpy.packbits``, PostgreSQL's ``bit`` and most vector databases.
    ``fingerprint`` names the encoder that made the codes, where it is known; codes of different
    encoders are not compared.

    >>> codes = Codes(np.array([[0b10110000]], np.uint8), bits=4)
    >>> codes
    Codes(1 row of 4 bits)
    >>> codes.signs()
    array([[ 1, -1,  1,  1]], dtype=int8)
    """

    packed: np.ndarray
    bits: int
    fingerprint: str | None = None

    def __post_init__(self) -> None:
        bits = _check.whole("bits", self.bits, 1)
        view = _check.packed(self.packed, bits).view()
        view.flags.writeable = False
        object.__setattr__(self, "packed", view)
        object.__setattr__(self, "bits", bits)
        check_fingerprint(self.fingerprint)

    def __len__(self) -> int:
        return len(self.packed)

    def __repr__(self) -> str:
        return f"Codes({len(self):,} row{'' if len(self) == 1 else 's'} of {self.bits} bits)"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Codes):
            return NotImplemented
        return self.bits == other.bits and np.array_equal(self.packed, other.packed)

    __hash__ = None  # type: ignore[assignment]

    def __getitem__(self, rows: Any) -> Codes:
        """Rows by slice, mask, integers or one integer; always ``Codes``."""
        if isinstance(rows, torch.Tensor):
            rows = rows.cpu().numpy()
        try:
            packed = self.packed[rows]
        except IndexError:
            _check.refuse(f"Codes of {len(self):,} rows have no rows {rows!r}.")
        return Codes(np.atleast_2d(packed), self.bits, self.fingerprint)

    def __iter__(self) -> Iterator[Codes]:
        """Each row, as ``Codes`` of one row."""
        return (self[row : row + 1] for row in range(len(self)))

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        """The packed bytes, uint8 (n, ceil(bits/8))."""
        return np.array(self.packed, dtype=dtype, copy=copy)

    def signs(self) -> np.ndarray:
        """The bits as int8 (n, bits): +1 for a one, -1 for a zero."""
        bits = np.unpackbits(self.packed, axis=1, count=self.bits)
        return 2 * bits.view(np.int8) - 1

    def prefix(self, bits: int) -> Codes:
        """The first ``bits`` bits of each code.

        >>> Codes(np.array([[0b10110000]], np.uint8), bits=4).prefix(3).signs()
        array([[ 1, -1,  1]], dtype=int8)
        """
        check_prefix(bits, self.bits)
        packed = self.packed[:, : (bits + 7) // 8].copy()
        packed[:, -1] &= 0xFF << (-bits % 8) & 0xFF
        return Codes(packed, bits, self.fingerprint)

    def save(self, path: str | os.PathLike[str], **columns: Any) -> None:
        """Write to ``.npz`` or ``.safetensors``, whole or not at all.

        ``columns`` are arrays to save with the codes, one row for each: ``rankbits evaluate`` reads
        ``labels`` and ``embeddings``, ``rankbits index`` reads ``ids``. Labels and ids may be
        strings in an ``.npz``.
        """
        arrays = {"packed": self.packed}
        for name, value in columns.items():
            if value is None:
                continue
            strings = name in ("ids", "labels") and np.asarray(value).dtype.kind == "U"
            if strings and Path(path).suffix != ".npz":
                _check.refuse(f"{name} that are strings need an .npz; got {path}.")
            column = np.asarray(value) if strings else _check.array(name, value)
            arrays[name] = _check.finite(name, column)
            _check.same_length(name, len(arrays[name]), "the codes", len(self))
        facts = {"bits": str(self.bits)}
        if self.fingerprint is not None:
            facts["fingerprint"] = self.fingerprint
        write_arrays(path, "codes", facts, arrays)

    @staticmethod
    def load(path: str | os.PathLike[str]) -> Codes:
        """Read what ``save`` wrote; a truncated, damaged or foreign file is refused."""
        return Codes.load_columns(path)[0]

    @staticmethod
    def load_columns(path: str | os.PathLike[str]) -> tuple[Codes, dict[str, np.ndarray]]:
        """The codes and the columns saved with them."""
        facts, arrays = read_arrays(path, "codes")
        if "packed" not in arrays or not facts.get("bits", "").isdigit():
            _check.refuse(f"{path} is not a rankbits codes file: it holds no packed bits.")
        codes = Codes(arrays.pop("packed"), int(facts["bits"]), facts.get("fingerprint"))
        for name, column in arrays.items():
            _check.same_length(f"'{name}' in {path}", len(column), "the codes", len(codes))
        return codes, arrays


def is_codes(path: str | os.PathLike[str]) -> bool:
    """Whether a file holds codes; False where it cannot be read."""
    try:
        return read_kind(path) == "codes"
    except _check.Refusal:
        return False


def check_fingerprint(value: Any) -> None:
    """Refuse a value that is neither a fingerprint of an encoder nor None."""
    if value is not None and not (isinstance(value, str) and FINGERPRINT.fullmatch(value)):
        _check.refuse(f"fingerprint must be 16 hexadecimal digits or None; got {value!r}.")


def check_prefix(bits: Any, most: int) -> None:
    """Refuse a number of first bits that is above ``most``, the bits of the codes."""
    if _check.whole("bits", bits, 1) > most:
        _check.refuse(f"bits must be at most {most}, the bits of the codes; got {bits}.")


def check_same_encoder(
    codes: str | None, others: str | None, holder: str, what: str = "codes"
) -> None:
    """Refuse to compare codes of two encoders, where both fingerprints are known.

    >>> check_same_encoder("0123456789abcdef", None, "The index")
    """
    if codes is not None and others is not None and codes != others:
        _check.refuse(
            f"These {what} were made by encoder {codes}; {holder} holds codes of encoder {others}. "
            "Codes of different encoders cannot be compared."
        )


def pack(signs: Any) -> Codes:
    """Turn numbers (n, bits) into ``Codes``: a number greater than zero is a one bit.

    Takes arrays and tensors of any real dtype on any device; a tensor on a GPU is packed there, so
    that only bits are copied.

    >>> pack([[0.3, -2.0, 0.0, 1.5]]).signs()
    array([[ 1, -1, -1,  1]], dtype=int8)
    """
    if isinstance(signs, torch.Tensor) and signs.device.type != "cpu":
        return _pack_on_device(signs)  # pragma: no cover - needs a GPU
    numbers = _check.finite("signs", _check.matrix("signs", signs))
    bits = _check.whole("The number of columns (bits)", numbers.shape[1], 1)
    return Codes(np.packbits(numbers > 0, axis=1), bits)


def _pack_on_device(signs: torch.Tensor) -> Codes:
    if signs.ndim != 2:
        _check.refuse(
            f"signs must have two dimensions (rows, columns); got shape {tuple(signs.shape)}."
        )
    if signs.is_floating_point() and not torch.isfinite(signs).all():
        _check.refuse("signs must be finite; some row has nan or inf.")
    rows, bits = signs.shape
    ones = torch.nn.functional.pad(signs > 0, (0, -bits % 8)).view(rows, -1, 8)
    weights = torch.tensor([128, 64, 32, 16, 8, 4, 2, 1], dtype=torch.uint8, device=signs.device)
    return Codes((ones * weights).sum(-1, dtype=torch.uint8).cpu().numpy(), bits)
