"""Turn floats into bits: ``fit``, ``transform``, ``encode``. Learned names end in ``_``."""

from rankbits.quantizers.affine import Quantizer
from rankbits.quantizers.classical import BRE, FastHash, MACHash, StructHash
from rankbits.quantizers.discriminant import SupervisedProjection
from rankbits.quantizers.householder import H2Q
from rankbits.quantizers.named import METHODS, load, make_quantizer
from rankbits.quantizers.projection import Projection
from rankbits.quantizers.reconstruction import Reconstruction
from rankbits.quantizers.rotations import ITQ, RandomRotation, Sign
from rankbits.quantizers.supervised import SupervisedRotation

__all__ = [
    "BRE",
    "H2Q",
    "ITQ",
    "METHODS",
    "FastHash",
    "MACHash",
    "Projection",
    "Quantizer",
    "RandomRotation",
    "Reconstruction",
    "Sign",
    "StructHash",
    "SupervisedProjection",
    "SupervisedRotation",
    "load",
    "make_quantizer",
]
