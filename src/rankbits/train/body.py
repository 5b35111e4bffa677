"""A frozen network that reads images, saved beside what was learned from its outputs."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path

import torch

from rankbits import _check
from rankbits.data.augment import View
from rankbits.models import make_backbone
from rankbits.models.scales import TwoScales
from rankbits.train.checkpoints import load_state, load_tensors, save_tensors
from rankbits.train.run import LARGE, RUN, Inputs, load_run

BODY = "body.safetensors"


@dataclass(frozen=True, eq=False)
class Body:
    """A network, its name, how it sees images, and the side of the smaller copy of each image that
    it also reads, if any."""

    network: torch.nn.Module
    name: str
    view: View
    smaller: int | None = None

    @property
    def reads(self) -> Inputs:
        return Inputs("images", side=self.view.side, channels=self.view.channels)


def make_body(
    source: str, side: int | None = None, mirror: bool = False, smaller: int | None = None
) -> Body:
    """Make the frozen network that ``source`` names: a network with published weights, or the
    folder of a run, whose last layer is left out. With ``smaller`` it also reads a copy of each
    image with that side."""
    if (Path(source) / RUN).is_file():
        run = load_run(source)
        network = getattr(run.model, "backbone", None)
        if not isinstance(network, torch.nn.Module) or run.inputs.kind != "images":
            _check.refuse(f"{source} has no layers that make features of images.")
        view, name = run.inputs.make_view(run.config.augment, mirror), run.model_name
    else:
        view = Inputs("images", side=side or LARGE, channels=3).make_view(mirror=mirror)
        network, name = make_backbone(source, "imagenet"), source
    assert view is not None
    if smaller is not None:
        network = TwoScales(network, smaller)
    return Body(network.eval(), name, view, smaller)


def save_body(path: Path, body: Body) -> None:
    """Write the weights and the facts that ``load_body`` needs."""
    facts = {"name": body.name, "view": asdict(body.view), "smaller": body.smaller}
    save_tensors(path, "body", body.network.state_dict(), facts)


def load_body(path: Path) -> Body:
    """Read what ``save_body`` wrote."""
    tensors, facts = load_tensors(path, "body")
    try:
        name, view, smaller = str(facts["name"]), View(**facts["view"]), facts["smaller"]
    except (KeyError, TypeError):
        _check.refuse(f"{path} is damaged: it does not say how images are seen.")
    network = make_backbone(name, channels=view.channels)
    if smaller is not None:
        network = TwoScales(network, _check.whole("smaller", smaller, 1))
    load_state(network, tensors, path)
    return Body(network.eval(), name, view, smaller)
