"""NonLinear: quantizers whose bits are not the signs of a linear map."""

from __future__ import annotations

from typing import Any, NoReturn

import torch

from rankbits import _check
from rankbits.quantizers.affine import Quantizer


class NonLinear(Quantizer):
    """Bits by kernels, trees or a search: ``fit``, ``transform``, ``encode`` and ``save`` work.

    ``fold``, ``to_linear``, ``to_faiss`` and ``to_onnx`` need a matrix and refuse.
    """

    def _refuse_linear(self) -> NoReturn:
        _check.refuse(
            f"The bits of {type(self).__name__} are not the signs of a linear map, so they cannot "
            "be folded or exported; those of Projection can."
        )

    def fold(self, linear: torch.nn.Linear) -> Any:
        self._refuse_linear()

    def to_linear(self) -> Any:
        self._refuse_linear()

    def to_faiss(self) -> Any:
        self._refuse_linear()

    def to_onnx(self, path: Any) -> None:
        self._refuse_linear()
