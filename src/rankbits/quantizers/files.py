"""Write quantizers to files: safetensors with options as JSON, and ONNX."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import torch

from rankbits import _check
from rankbits._files import write_arrays, write_whole

LEARNED = (
    "weight_", "offset_", "rotation_", "atoms_", "centre_", "nested_atoms_", "nested_bits_",
    "anchors_", "spread_", "features_", "thresholds_", "leaves_", "dim_",
)  # fmt: skip


def save(quantizer: Any, path: str | os.PathLike[str]) -> None:
    """Write a fitted quantizer to one file; ``named.load`` reads it back."""
    arrays = {
        name: getattr(quantizer, name).numpy() for name in LEARNED if hasattr(quantizer, name)
    }
    facts = {
        "class": type(quantizer).__name__,
        "options": json.dumps(quantizer.get_params(), default=_to_plain_number),
        "objective": json.dumps(getattr(quantizer, "objective_", None)),
    }
    write_arrays(path, "quantizer", facts, arrays, form=".safetensors")


def _to_plain_number(value: Any) -> Any:
    """A number of numpy, which JSON does not take, as Python's."""
    return value.item()


def write_onnx(weight: torch.Tensor, offset: torch.Tensor, path: str | os.PathLike[str]) -> None:
    """Write the map of these tensors as ONNX, for ``Quantizer.to_onnx``."""
    try:
        from onnx import TensorProto, checker, helper, numpy_helper
    except ImportError:
        _check.refuse("to_onnx needs the package onnx: pip install onnx.")
    if Path(path).suffix != ".onnx":
        _check.refuse(f"{path} must end in .onnx.")
    bits, dim = weight.shape
    nodes = [
        helper.make_node("Gemm", ["embeddings", "weight", "offset"], ["outputs"], transB=1),
        helper.make_node("Greater", ["outputs", "zero"], ["positive"]),
        helper.make_node("Cast", ["positive"], ["bits"], to=TensorProto.UINT8),
    ]
    graph = helper.make_graph(
        nodes,
        "rankbits",
        [helper.make_tensor_value_info("embeddings", TensorProto.FLOAT, ["n", dim])],
        [
            helper.make_tensor_value_info("bits", TensorProto.UINT8, ["n", bits]),
            helper.make_tensor_value_info("outputs", TensorProto.FLOAT, ["n", bits]),
        ],
        [
            numpy_helper.from_array(weight.numpy(), "weight"),
            numpy_helper.from_array(offset.numpy(), "offset"),
            numpy_helper.from_array(torch.zeros(()).numpy(), "zero"),
        ],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    checker.check_model(model)
    write_whole(path, lambda file: file.write(model.SerializeToString()))
