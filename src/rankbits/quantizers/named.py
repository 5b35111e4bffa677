"""Make a quantizer by the name of its method, or load one from a file."""

from __future__ import annotations

import json
import os
from typing import Any

import torch

from rankbits import _check
from rankbits._files import read_arrays
from rankbits.quantizers.affine import Quantizer
from rankbits.quantizers.classical import BRE, FastHash, MACHash, StructHash
from rankbits.quantizers.discriminant import SupervisedProjection
from rankbits.quantizers.files import LEARNED
from rankbits.quantizers.householder import H2Q
from rankbits.quantizers.projection import Projection
from rankbits.quantizers.reconstruction import Reconstruction
from rankbits.quantizers.rotations import ITQ, RandomRotation, Sign
from rankbits.quantizers.supervised import SupervisedRotation

BY_BITS: dict[str, type[Quantizer]] = {
    "reconstruct": Reconstruction, "classes": SupervisedProjection,
    "supervised": SupervisedRotation, "random": RandomRotation, "itq": ITQ, "h2q": H2Q, "bre": BRE,
    "fasthash": FastHash, "structhash": StructHash, "machash": MACHash,
}  # fmt: skip
METHODS = (
    "auto", "reconstruct", "pca", "neighbours", "sign", "random", "itq", "h2q", "supervised",
    "classes", "bre", "fasthash", "structhash", "machash",
)  # fmt: skip


def make_quantizer(method: str, bits: int | None, dim: int, labelled: bool, seed: int) -> Quantizer:
    """Make the quantizer of this ``method``, not fitted yet.

    ``auto`` is a supervised rotation if there are labels; otherwise H2Q if bits equals dim, else
    principal components.

    >>> make_quantizer("itq", 8, 16, labelled=False, seed=3)
    ITQ(bits=8, seed=3)
    """
    _check.choice("method", method, METHODS)
    bits = dim if bits is None else bits
    if method == "auto":
        method = "supervised" if labelled else "h2q" if bits == dim else "pca"
    if method in ("pca", "neighbours"):
        return Projection(bits, objective=method, seed=seed)
    if method == "sign":
        if bits != dim:
            _check.refuse(
                f"method 'sign' gives as many bits as dimensions, {dim}; for {bits} bits use "
                "another method, such as 'pca'."
            )
        return Sign(bits)
    return BY_BITS[method](bits, seed=seed)  # type: ignore[call-arg]


def load(path: str | os.PathLike[str]) -> Quantizer:
    """Read what a quantizer's ``save`` wrote; nothing in the file can run.

    >>> import tempfile
    >>> from rankbits import Sign
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     Sign().fit(torch.eye(4)).save(f"{folder}/q")
    ...     load(f"{folder}/q")
    Sign()
    """
    facts, arrays = read_arrays(path, "quantizer")
    kinds: tuple[type[Quantizer], ...] = (*BY_BITS.values(), Projection, Sign)
    kind = {kind.__name__: kind for kind in kinds}.get(facts.get("class", ""))
    if kind is None or not set(kind.needs) <= set(arrays):
        _check.refuse(f"{path} holds no quantizer that this version knows.")
    try:
        options: dict[str, Any] = json.loads(facts["options"])
        objective = json.loads(facts["objective"])
    except (KeyError, ValueError):
        _check.refuse(f"{path} is damaged: its options cannot be read.")
    quantizer = kind()
    # options of other versions are left out: the bits are computed from the arrays alone
    present = {name: options[name] for name in quantizer.options() if name in options}
    quantizer.set_params(**{n: tuple(v) if isinstance(v, list) else v for n, v in present.items()})
    for name in LEARNED:
        if name in arrays:
            setattr(quantizer, name, torch.from_numpy(arrays[name]))
    if not quantizer.is_sound():
        _check.refuse(f"{path} is damaged: its arrays do not fit together.")
    if objective is not None:
        quantizer.objective_ = objective
    return quantizer
