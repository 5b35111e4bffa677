"""A quantizer by its name, for embeddings of a width."""

from __future__ import annotations

from rankbits import _check
from rankbits.quantizers.affine import Quantizer
from rankbits.quantizers.discriminant import SupervisedProjection
from rankbits.quantizers.householder import H2Q
from rankbits.quantizers.projection import Projection
from rankbits.quantizers.reconstruction import Reconstruction
from rankbits.quantizers.rotations import ITQ, RandomRotation, Sign
from rankbits.quantizers.supervised import SupervisedRotation

METHODS = (
    "auto",
    "reconstruct",
    "sign",
    "random",
    "itq",
    "h2q",
    "supervised",
    "classes",
    "pca",
    "neighbours",
)


def make_quantizer(method: str, bits: int | None, dim: int, labelled: bool, seed: int) -> Quantizer:
    """The quantizer that ``method`` names, not fitted yet.

    ``auto``: labels call for a supervised rotation; without them H2Q where bits equals dim, else
    the principal components.

    >>> make_quantizer("itq", 8, 16, labelled=False, seed=3)
    ITQ(bits=8, seed=3)
    """
    _check.choice("method", method, METHODS)
    bits = dim if bits is None else bits
    if method == "auto":
        method = "supervised" if labelled else "h2q" if bits == dim else "pca"
    if method in ("pca", "neighbours"):
        return Projection(bits, objective=method, seed=seed)
    if method == "reconstruct":
        return Reconstruction(bits, seed=seed)
    if method == "classes":
        return SupervisedProjection(bits, seed=seed)
    if method == "supervised":
        return SupervisedRotation(bits=bits, seed=seed)
    if method == "sign":
        if bits != dim:
            _check.refuse(
                f"method 'sign' gives as many bits as dimensions, {dim}; for {bits} bits use "
                "another method, such as 'pca'."
            )
        return Sign(bits)
    rotations = {"random": RandomRotation, "itq": ITQ, "h2q": H2Q}
    return rotations[method](bits, seed=seed)
