"""A quantizer by its name, for embeddings of a width."""

from __future__ import annotations

from rankbits import _check
from rankbits.quantizers.affine import Quantizer
from rankbits.quantizers.householder import H2Q
from rankbits.quantizers.projection import Projection
from rankbits.quantizers.rotations import ITQ, RandomRotation, Sign
from rankbits.quantizers.supervised import SupervisedRotation

METHODS = ("auto", "sign", "random", "itq", "h2q", "supervised", "pca", "neighbours")


def chosen(method: str, bits: int | None, dim: int, labelled: bool, seed: int) -> Quantizer:
    """The quantizer a method names. ``auto``: labels call for a supervised rotation; without them
    H2Q where bits equals dim, else the principal components."""
    _check.choice("method", method, METHODS)
    bits = dim if bits is None else bits
    if method == "auto":
        method = "supervised" if labelled else "h2q" if bits == dim else "pca"
    if method in ("pca", "neighbours"):
        return Projection(bits, objective=method, seed=seed)
    if method == "supervised":
        return SupervisedRotation(bits=bits, seed=seed)
    if bits != dim:
        _check.refuse(
            f"method '{method}' gives as many bits as dimensions, {dim}; for {bits} bits use "
            "'pca', 'neighbours' or 'supervised'."
        )
    plain: dict[str, Quantizer] = {
        "sign": Sign(), "random": RandomRotation(seed), "itq": ITQ(seed=seed), "h2q": H2Q(seed=seed)
    }  # fmt: skip
    return plain[method]
