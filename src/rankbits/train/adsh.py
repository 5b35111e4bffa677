"""The codes that ADSH learns beside the network: they follow its outputs once an epoch."""

from __future__ import annotations

import torch

from rankbits.data.augment import View
from rankbits.data.examples import Examples
from rankbits.losses import ADSH
from rankbits.train.embed import embed

ROWS = 2000  # rows whose outputs the codes follow, as ADSH's authors have it


def update_codes(
    loss: ADSH,
    model: torch.nn.Module,
    train: Examples,
    view: View | None,
    *,
    seed: int,
    device: torch.device,
    amp: str,
) -> None:
    """Fit the loss's codes to the outputs of training rows that are drawn by ``seed``."""
    draw = torch.Generator().manual_seed(seed)
    drawn = torch.randperm(len(train), generator=draw)[:ROWS].sort().values
    embedded = embed(model, train.subset(drawn.numpy()), view, device=device, amp=amp)
    outputs = torch.from_numpy(embedded.embeddings).to(device)
    loss.update_codes(outputs, drawn[torch.from_numpy(embedded.rows)].to(device))
