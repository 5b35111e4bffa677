"""Quantizers in files: safetensors with options as JSON, and ONNX. Nothing loaded can run."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import torch

from rankbits import _check
from rankbits._files import read_arrays, write_arrays, write_whole
from rankbits.quantizers.affine import LEARNED, Quantizer


def _known() -> dict[str, type[Quantizer]]:
    from rankbits import quantizers

    named = (getattr(quantizers, name) for name in quantizers.__all__)
    return {c.__name__: c for c in named if isinstance(c, type) and c is not Quantizer}


def save(quantizer: Quantizer, path: str | os.PathLike[str]) -> None:
    arrays = {
        name: getattr(quantizer, name).numpy() for name in LEARNED if hasattr(quantizer, name)
    }
    facts = {
        "class": type(quantizer).__name__,
        "options": json.dumps(quantizer.get_params(), default=_plain_number),
        "objective": json.dumps(getattr(quantizer, "objective_", None)),
    }
    write_arrays(path, "quantizer", facts, arrays, form=".safetensors")


def _plain_number(value: Any) -> Any:
    """Numbers of numpy, which JSON does not know, as Python's."""
    return value.item()


def load(path: str | os.PathLike[str]) -> Quantizer:
    """Read what a quantizer's ``save`` wrote.

    >>> import tempfile
    >>> from rankbits import Sign
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     Sign().fit(torch.eye(4)).save(f"{folder}/q")
    ...     load(f"{folder}/q")
    Sign()
    """
    facts, arrays = read_arrays(path, "quantizer")
    known = _known()
    if facts.get("class") not in known or not {"weight_", "offset_"} <= set(arrays):
        _check.refuse(f"{path} holds no quantizer that this version knows.")
    try:
        options: dict[str, Any] = json.loads(facts["options"])
        objective = json.loads(facts["objective"])
    except (KeyError, ValueError):
        _check.refuse(f"{path} is damaged: its options cannot be read.")
    made = known[facts["class"]]()
    # options of another version say how it was fitted there; its bits are in the arrays
    known_options = {name: options[name] for name in made.options() if name in options}
    made.set_params(**{n: tuple(v) if isinstance(v, list) else v for n, v in known_options.items()})
    for name in LEARNED:
        if name in arrays:
            setattr(made, name, torch.from_numpy(arrays[name]))
    if objective is not None:
        made.objective_ = objective
    return made


def write_onnx(weight: torch.Tensor, offset: torch.Tensor, path: str | os.PathLike[str]) -> None:
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
