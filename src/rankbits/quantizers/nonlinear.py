"""NonLinear: quantizers whose bits are not the signs of a linear map."""

from __future__ import annotations

from typing import Any, NoReturn

from rankbits import _check
from rankbits.quantizers.affine import Quantizer


class NonLinear(Quantizer):
    """Bits by kernels, trees or a search: ``fit``, ``transform``, ``encode`` and ``save`` work.

    ``fold``, ``to_linear``, ``to_faiss`` and ``to_onnx`` need a matrix and refuse.
    """

    def _refuse_linear(self, *args: Any, **options: Any) -> NoReturn:
        _check.refuse(
            f"The bits of {type(self).__name__} are not the signs of a linear map, so they cannot "
            "be folded or exported; those of Projection can."
        )

    fold = to_linear = to_faiss = to_onnx = _refuse_linear
