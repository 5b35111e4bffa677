"""A frozen network that reads images, kept beside what was learned from its outputs."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import torch

from rankbits import _check
from rankbits.data.augment import View
from rankbits.models import backbone
from rankbits.train.checkpoints import load_tensors, put, save_tensors
from rankbits.train.run import LARGE, RUN, Inputs, load_run

BODY = "body.safetensors"


def make_body(
    source: str, side: int | None = None, mirror: bool = False
) -> tuple[torch.nn.Module, str, View]:
    """The frozen network that ``source`` names, what it is called, and how it sees images.

    ``source`` is a network with published weights, or the folder of a run, all of which but its
    last layer is meant.
    """
    if not (Path(source) / RUN).is_file():
        view = Inputs("images", side=side or LARGE, channels=3).view(mirror=mirror)
        assert view is not None
        return backbone(source, "imagenet"), source, view
    run = load_run(source)
    body = getattr(run.model, "backbone", None)
    if not isinstance(body, torch.nn.Module) or run.inputs.kind != "images":
        _check.refuse(f"{source} has no layers that make features of images.")
    seen = run.inputs.view(run.config.augment, mirror)
    assert seen is not None
    return body, run.model_name, seen


def save_body(path: Path, body: torch.nn.Module, name: str, view: View) -> None:
    """Write the weights, and what ``load_body`` needs to use them."""
    save_tensors(path, "body", body.state_dict(), {"name": name, "view": asdict(view)})


def load_body(path: Path) -> tuple[torch.nn.Module, View]:
    """Read what ``save_body`` wrote."""
    tensors, facts = load_tensors(path, "body")
    try:
        name, view = str(facts["name"]), View(**facts["view"])
    except (KeyError, TypeError):
        _check.refuse(f"{path} is damaged: it does not say how images are seen.")
    body = backbone(name, channels=view.channels)
    put(body, tensors, path)
    return body.eval(), view
