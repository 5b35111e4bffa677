"""The reference of names, from their docstrings."""

from __future__ import annotations

import importlib
import inspect
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load_file

import rankbits as rb
from rankbits import indexes, losses, quantizers
from rankbits.losses import named


def signature(name: str, value: Any) -> str:
    plain = inspect.ismodule(value) or (inspect.isclass(value) and issubclass(value, Exception))
    if plain:
        return name
    parts: list[str] = []
    for p in inspect.signature(value).parameters.values():
        if p.kind is p.KEYWORD_ONLY and "*" not in parts and not any(x[0] == "*" for x in parts):
            parts.append("*")
        stars = "*" * ((p.kind is p.VAR_POSITIONAL) + 2 * (p.kind is p.VAR_KEYWORD))
        said = "" if p.annotation is p.empty else f": {str(p.annotation).strip(chr(39))}"
        default = "" if p.default is p.empty else f" = {p.default!r}"
        parts.append(f"{stars}{p.name}{said}{default}")
    line = f"{name}({', '.join(parts)})"
    return line if len(line) <= 96 else f"{name}(\n" + "".join(f"    {p},\n" for p in parts) + ")"


def plain(text: str) -> str:
    """Sentences as Markdown: double backticks single, and < and * as they are outside code."""
    parts = text.replace("``", "`").split("`")
    shown = [
        p if i % 2 else p.replace("<", "&lt;").replace("*", "\\*") for i, p in enumerate(parts)
    ]
    return "`".join(shown)


def prose(text: str) -> str:
    """A docstring as Markdown: examples and tables of bytes fenced, the rest ``plain``."""
    made: list[str] = []
    held: list[str] = []
    kind = ""

    def close(then: str) -> None:
        nonlocal kind, held
        body = "\n".join(held)
        made.append(plain(body) if not kind else f"```{kind}\n{body}\n```")
        kind, held = then, []

    for line in text.splitlines():
        if line.startswith("```"):
            close("" if kind == "text" else "text")
            continue
        if kind != "text":
            if not kind and line.startswith(">>>"):
                close("pycon")
            elif kind == "pycon" and not line.strip():
                close("")
        held.append(line)
    close("")
    return "\n\n".join(part.strip("\n") for part in made if part.strip())


def methods(value: type) -> str:
    """One line for each public method with a docstring of its own."""
    rows = []
    for name, member in inspect.getmembers(value):
        ours = str(getattr(member, "__module__", "")).startswith("rankbits")
        if name.startswith("_") or not ours or not callable(member) or not member.__doc__:
            continue
        first = " ".join((inspect.getdoc(member) or "").split("\n\n")[0].split())
        takes = ", ".join(p for p in inspect.signature(member).parameters if p != "self")
        rows.append(f"- `{name}({takes})`: {plain(first)}")
    return "\n\n" + "\n".join(rows) + "\n" if rows else ""


def entry(name: str, value: Any) -> str:
    shown = f"## {name}\n\n```python\n{signature(name, value)}\n```\n\n"
    said = prose(inspect.getdoc(value) or "")
    return shown + said + (methods(value) if inspect.isclass(value) else "") + "\n"


def page(title: str, said: str, names: Iterable[tuple[str, Any]]) -> str:
    return f"# {title}\n\n{said}\n\n" + "\n".join(entry(n, v) for n, v in names)


def of(room: Any, names: Iterable[str]) -> list[tuple[str, Any]]:
    return [(name, getattr(room, name)) for name in names]


METRICS = (
    "rank", "rank_codes", "average_precision", "map_at_r", "r_precision", "dcg", "ndcg",
    "precision_at", "recall_at", "hit_at", "reciprocal_rank", "precision_within", "recall_within",
    "precision_recall_curve",
)  # fmt: skip
QUANTIZERS = (
    "Sign", "RandomRotation", "ITQ", "H2Q", "SupervisedRotation", "SupervisedProjection",
    "Projection", "Reconstruction", "BRE", "FastHash", "StructHash", "MACHash",
)  # fmt: skip


def api() -> str:
    said = f"{rb.__doc__}\nEvery public name of `import rankbits as rb`, version {rb.__version__}."
    return page("The API", said, of(rb, rb.__all__))


def metrics() -> str:
    said = (
        "Every metric takes a `Ranking` (counts by distance and grade) and returns (Q,) float64, "
        'with nan where nothing is relevant. `ties="mean"` is the mean over all orders of equal '
        'distances, `"best"` and `"worst"` are the ends. A cutoff inside a tie counts the places '
        "up to it. Tests compare each metric with enumeration over all orders. See [which mAP is "
        "which](map.md)."
    )
    return page("Metrics", said, of(rb, METRICS))


def all_losses() -> str:
    table = "\n".join(f"| `{n}` | `losses.{c.__name__}` |" for n, c in named.LOSSES.items())
    said = (
        "Each loss is called as `loss(embeddings, labels)` and returns a scalar. Any callable of "
        "that form can be trained with, also those of pytorch-metric-learning (`pml:NAME`). In the "
        "formulas z are raw outputs (M, K) for K bits; s is 1 where two rows share a label; c is "
        "their cosine; p is the share of similar pairs and w = s/p + (1 - s)/(1 - p); u = tanh z. "
        "Means are over the pairs of a batch.\n\n"
        '`variant="h2q"` computes what the H2Q code computes where it differs from the original '
        "([known errors](../notes/errors.md)).\n\n"
        f"| `rankbits train --loss` | class |\n|---|---|\n{table}"
    )
    return page("Losses", said, of(losses, losses.__all__))


def all_quantizers() -> str:
    said = (
        "A quantizer turns floats into bits. Its methods are `fit(embeddings, labels=None)`, "
        "`encode(embeddings)`, which returns `Codes`, `transform`, which returns the rotated "
        "floats, `fold(linear)`, `save`, `to_onnx` and `to_faiss`; `rb.load(path)` reads one. "
        "Names of learned attributes end in `_`.\n\n"
        "| `rankbits fit --method` | is |\n|---|---|\n"
        "| `auto` | `SupervisedRotation` with labels; else `Projection`, or `H2Q` where bits = dim"
        " |\n| `sign`, `random`, `itq`, `h2q` | the class of that name |\n"
        "| `supervised` | `SupervisedRotation` |\n"
        "| `pca`, `neighbours` | `Projection` with that `objective` |\n"
        "| `classes` | `SupervisedProjection` |\n"
        "| `reconstruct` | `Reconstruction`, for float questions: keeps most of the neighbours |"
        "\n| `bre`, `fasthash`, `structhash`, `machash` | the class of that name |"
    )
    return page("Quantizers", said, of(quantizers, QUANTIZERS))


def listed() -> list[str]:
    """A row of a table for each array in small files of each kind."""
    x = np.random.default_rng(0).normal(size=(20, 10))
    quantizer = rb.Sign().fit(x)
    found = []
    with tempfile.TemporaryDirectory() as folder:
        codes, fitted = Path(folder, "codes.npz"), Path(folder, "quantizer")
        quantizer.encode(x).save(codes, labels=np.arange(20))
        quantizer.save(fitted)
        with np.load(codes, allow_pickle=False) as arrays:
            found += [(codes.name, n, str(a.dtype), a.shape) for n, a in arrays.items()]
        for name, tensor in load_file(fitted).items():
            found.append(("a quantizer (safetensors)", name, str(tensor.dtype), tensor.shape))
    return [f"| {file} | `{n}` | {kind} | {shape} |\n" for file, n, kind, shape in found]


def files() -> str:
    """File formats, from the docstrings of the modules that read and write them."""
    modules = {
        "An index": "rankbits.indexes.file",
        "Its journal": "rankbits.indexes.journal",
        "Arrays: codes, embeddings, quantizers": "rankbits._files",
        "Codes": "rankbits.types.codes",
        "Quantizers": "rankbits.quantizers.files",
        "Checkpoints of a run": "rankbits.train.checkpoints",
        "Runs and judgements (TREC)": "rankbits.data.trec",
        "Own examples": "rankbits.data.folders",
    }
    text = (
        "# File formats\n\nEvery file is written whole or not at all (a temporary name, fsync, "
        "rename), and reading a file never executes code: there is no pickle. The text comes from "
        "the modules that read and write the files.\n"
    )
    for title, name in modules.items():
        said = prose(inspect.getdoc(importlib.import_module(name)) or "")
        text += f"\n## {title}\n\n`{name}`\n\n{said}\n"
    text += "\n## What is inside\n\nTwenty rows of 10 bits with labels, written and listed:\n\n"
    text += "| file | array | dtype | shape |\n|---|---|---|---|\n" + "".join(listed())
    return text + "\n" + "\n".join(entry(n, getattr(indexes, n)) for n in ("HammingIndex",))
