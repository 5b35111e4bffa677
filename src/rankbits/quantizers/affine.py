"""Quantizer: what all quantizers share. The bits are the signs of an affine map."""

from __future__ import annotations

import abc
import hashlib
import inspect
import os
from typing import Any, ClassVar, TypeVar

import numpy as np
import torch

from rankbits import _check
from rankbits.quantizers import rows
from rankbits.quantizers.files import save, write_onnx
from rankbits.types import Codes, Questions, pack

Self = TypeVar("Self", bound="Quantizer")


class Quantizer(abc.ABC):
    """bits = signs of ``weight_ @ x + offset_``: fit, transform, encode, fold, save.

    ``bits`` is the first option of every quantizer; None means one for each dimension.

    Subclasses set ``weight_`` (bits, dim) and ``offset_`` (bits,), float32 on the CPU, in ``_fit``.
    Rotations also have ``rotation_`` (bits, bits), and quantizers that minimise something have
    ``objective_``. ``__init__`` only assigns, so that quantizers work in scikit-learn's pipelines,
    searches and ``clone``.
    """

    bits: int | None
    weight_: torch.Tensor
    offset_: torch.Tensor
    rotation_: torch.Tensor
    objective_: float
    asks_with = "codes"  # or "questions": what an index searches with
    needs: ClassVar[tuple[str, ...]] = ("weight_", "offset_")  # what the bits are computed from

    @abc.abstractmethod
    def _fit(self, embeddings: Any, labels: Any) -> None:
        """Set ``weight_``, ``offset_`` and whatever else is learned."""

    def fit(self: Self, embeddings: Any, labels: Any = None, *, y: Any = None) -> Self:
        """Learn from (n, dim) embeddings, and from labels if the method uses them; returns self.

        ``y`` is what scikit-learn calls labels.
        """
        if labels is not None and y is not None:
            _check.refuse("Give either labels or y, not both: they are two names of one thing.")
        self._fit(embeddings, y if labels is None else labels)
        return self

    @classmethod
    def options(cls) -> list[str]:
        """The names of the options that ``__init__`` takes."""
        return list(inspect.signature(cls).parameters)

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.options()}

    def set_params(self, **options: Any) -> Quantizer:
        for name, value in options.items():
            if name not in self.options():
                _check.refuse(
                    f"{type(self).__name__} has no option '{name}'"
                    f"{_check.suggest(name, self.options())}."
                )
            setattr(self, name, value)
        return self

    def __repr__(self) -> str:
        parameters = inspect.signature(type(self)).parameters
        changed = (
            f"{name}={value!r}"
            for name, value in self.get_params().items()
            if value != parameters[name].default
        )
        return f"{type(self).__name__}({', '.join(changed)})"

    @property
    def bits_(self) -> int:
        self._check_fitted()
        return len(getattr(self, self.needs[0]))

    @property
    def n_features_in_(self) -> int:
        """The dim of the fitted embeddings, under scikit-learn's name."""
        if not hasattr(self, self.needs[0]):
            raise AttributeError(f"This {type(self).__name__} is not fitted yet.")
        return self._dim()

    def _dim(self) -> int:
        return self.weight_.shape[1]

    def __sklearn_tags__(self) -> Any:
        """What scikit-learn asks of a transformer; only scikit-learn calls this."""
        from sklearn.utils import Tags, TargetTags, TransformerTags

        return Tags(
            estimator_type=None,
            target_tags=TargetTags(required=False),
            transformer_tags=TransformerTags(preserves_dtype=[]),
        )

    def _check_fitted(self) -> None:
        if not hasattr(self, self.needs[0]):
            _check.refuse(f"This {type(self).__name__} is not fitted yet: call fit first.")

    def is_sound(self) -> bool:
        """Whether arrays that were read from a file fit together; matrices are checked in use."""
        return True

    def _bits_for(self, dim: int) -> int:
        """The number of bits for embeddings with ``dim`` columns."""
        return dim if self.bits is None else _check.whole("bits", self.bits, 1)

    def _set_map(self, weight: torch.Tensor, offset: torch.Tensor | None = None) -> None:
        """Set ``weight_`` and ``offset_``; None is an offset of zeros."""
        self.weight_ = weight.detach().float().cpu().contiguous()
        zero = torch.zeros(len(weight))
        self.offset_ = zero if offset is None else offset.detach().float().cpu().contiguous()

    def transform(self, embeddings: Any) -> Any:
        """(n, dim) -> (n, bits) floats whose signs are the bits: an array for an array, a tensor on
        the same device for a tensor. One row, (dim,), gives (1, bits)."""
        self._check_fitted()
        value = rows.check_embeddings("embeddings", embeddings, self._dim())
        parts = [self._map(part) for _, part in rows.split_chunks(value)]
        outputs = torch.cat(parts) if parts else torch.empty(0, self.bits_)
        return outputs if isinstance(embeddings, torch.Tensor) else outputs.numpy()

    def encode(self, embeddings: Any) -> Codes:
        """(n, dim) -> ``Codes``, the signs of ``transform``, computed a few rows at a time.

        One row, (dim,), gives one code.
        """
        self._check_fitted()
        value = rows.check_embeddings("embeddings", embeddings, self._dim())
        packed = np.zeros((len(value), (self.bits_ + 7) // 8), np.uint8)
        for start, part in rows.split_chunks(value):
            outputs, stop = self._map(part), start + len(part)
            if outputs.is_cuda:  # pragma: no cover - needs a GPU
                packed[start:stop] = pack(outputs).packed
            else:
                packed[start:stop] = np.packbits(outputs.numpy() > 0, axis=1)
        return Codes(packed, self.bits_, self.fingerprint)

    def ask(self, embeddings: Any) -> Questions:
        """(n, dim) -> ``Questions``: queries that keep the floats of ``transform``, and so rank
        better than their bits. One row, (dim,), gives one question."""
        outputs = _check.array("embeddings", self.transform(embeddings))
        return Questions(outputs, fingerprint=self.fingerprint)

    @property
    def fingerprint(self) -> str:
        """16 hexadecimal digits, a digest of what the bits are computed from."""
        self._check_fitted()
        maps = tuple(getattr(self, name) for name in self.needs)
        state = tuple((id(part), part._version) for part in maps)
        if getattr(self, "_digest", (None, ""))[0] != state:
            digest = hashlib.blake2b(digest_size=8)
            for part in maps:
                digest.update(str(tuple(part.shape)).encode() + part.contiguous().numpy().tobytes())
            self._digest = (state, digest.hexdigest())
        return self._digest[1]

    def fit_transform(self, embeddings: Any, labels: Any = None, *, y: Any = None) -> Any:
        return self.fit(embeddings, labels, y=y).transform(embeddings)

    def _map(self, part: torch.Tensor) -> torch.Tensor:
        """The outputs (n, bits) of some rows (n, dim)."""
        weight, offset = (t.to(part.device, torch.float32) for t in (self.weight_, self.offset_))
        outputs = torch.addmm(offset, part.float(), weight.T)
        if not torch.isfinite(outputs.sum()):
            rows.check_finite("embeddings", part)
        return outputs

    def fold(self, linear: torch.nn.Linear) -> torch.nn.Linear:
        """``linear``, the layer that makes the embeddings, and the quantizer in one linear layer:
        the signs of its outputs are the bits."""
        self._check_fitted()
        if not isinstance(linear, torch.nn.Linear) or linear.out_features != self.weight_.shape[1]:
            _check.refuse(
                f"fold takes the linear layer that makes the embeddings, with "
                f"{self.weight_.shape[1]} outputs."
            )
        folded = torch.nn.Linear(linear.in_features, self.bits_, device=linear.weight.device)
        weight, offset = self.weight_.double(), self.offset_.double()
        with torch.no_grad():
            folded.weight.copy_(weight @ linear.weight.double().cpu())
            inner = torch.zeros(len(linear.weight)) if linear.bias is None else linear.bias
            folded.bias.copy_(weight @ inner.double().cpu() + offset)
        return folded.to(linear.weight.dtype)

    def to_linear(self) -> torch.nn.Linear:
        """The quantizer as a layer from embeddings to floats whose signs are the bits."""
        self._check_fitted()
        layer = torch.nn.Linear(self.weight_.shape[1], self.bits_)
        with torch.no_grad():
            layer.weight.copy_(self.weight_)
            layer.bias.copy_(self.offset_)
        return layer

    def to_faiss(self) -> Any:
        """A faiss ``LinearTransform`` with the same outputs (needs the package faiss-cpu)."""
        self._check_fitted()
        try:
            import faiss
        except ImportError:
            _check.refuse("to_faiss needs the package faiss-cpu: pip install faiss-cpu.")
        bits, dim = self.weight_.shape
        transform = faiss.LinearTransform(dim, bits, True)
        faiss.copy_array_to_vector(self.weight_.numpy().reshape(-1), transform.A)
        faiss.copy_array_to_vector(self.offset_.numpy(), transform.b)
        transform.is_trained = True
        return transform

    def to_onnx(self, path: str | os.PathLike[str]) -> None:
        """Write an ONNX model: ``embeddings`` (n, dim) -> ``bits`` (n, bits) uint8 0 and 1, and
        ``outputs``, the floats they are signs of (needs the package onnx)."""
        self._check_fitted()
        write_onnx(self.weight_, self.offset_, path)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write to one file (safetensors), whole or not at all; ``rb.load`` reads it back."""
        self._check_fitted()
        save(self, path)
