"""What the network sees of an image: its size, and random changes in training.

Images come as they are stored, uint8 (n, height, width, channels), and are changed on the device
that holds them: one resampling does crop, shift, scale and mirror. The random numbers of a whole
batch are drawn on the CPU from one seed. So the change of an image does not depend on chunks or
processes, and is the same in a second pass or a resumed run.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F

from rankbits.kernels import see_images, to_floats

KINDS = ("none", "flip", "shift", "crop", "full", "strong")
MOVED = ("shift", "crop", "full", "strong")
MARGIN = 8 / 7  # images to be cropped are stored larger than they are seen, 256 for 224
SMALL = 64  # up to this side an image is shifted by an eighth instead, its border repeated
SHADE = 0.2
TURN = 0.26  # radians, 15 degrees
COLOUR = 0.5
COVER = (0.15, 0.45)  # sides of the covered part, as shares of the image's side


@dataclass(frozen=True)
class View:
    """Images as floats (n, channels, side, side) in [0, 1].

    ``augment`` names the random changes in training: ``"none"``; ``"flip"`` mirrors half of the
    images; ``"shift"`` moves them and never mirrors (letters); ``"crop"`` moves and mirrors, as
    FastAP trains; ``"full"`` also changes size and brightness; ``"strong"`` also turns an image,
    changes its colours and covers a part of it. ``mirror``: outside training an image is seen a
    second time, mirrored.

    >>> view = View(side=2, channels=3, augment="flip")
    >>> view.see_centre(torch.full((1, 4, 4, 1), 255, dtype=torch.uint8)).shape
    torch.Size([1, 3, 2, 2])
    """

    side: int
    channels: int = 3
    augment: str = "none"
    mirror: bool = False

    @property
    def stored(self) -> int:
        """The side that images are decoded to."""
        crops = self.augment in MOVED and self.side > SMALL
        return round(self.side * MARGIN) if crops else self.side

    def see_centre(self, images: torch.Tensor) -> torch.Tensor:
        """The centre of each image: what the network sees of a query or a database item."""
        pixels = to_floats(images, self.channels)
        height, width = pixels.shape[2:]
        if height == width == self.side:
            return pixels
        if self.augment in MOVED and height == width == self.stored:
            start = (height - self.side) // 2
            return pixels[:, :, start : start + self.side, start : start + self.side]
        size = (self.side, self.side)
        return F.interpolate(pixels, size, mode="bilinear", antialias=True)

    def draw(self, rows: int, seed: int) -> torch.Tensor:
        """(rows, 6 or 12) numbers in [0, 1): the random changes of a whole batch."""
        kinds = 12 if self.augment == "strong" else 6
        return torch.rand(rows, kinds, generator=torch.Generator().manual_seed(seed))

    def see_changed(self, images: torch.Tensor, drawn: torch.Tensor) -> torch.Tensor:
        """Images as a step of training sees them; ``drawn`` are their rows of ``draw``."""
        if self.augment == "none" or len(images) == 0:
            return self.see_centre(images)
        if self.augment == "flip":
            pixels = self.see_centre(images)
            mirrored = (drawn[:, 0] < 0.5).to(images.device, non_blocking=True)
            return torch.where(mirrored[:, None, None, None], pixels.flip(3), pixels)
        changes = self._plan_changes(images.shape[1], drawn).to(images.device, non_blocking=True)
        return see_images(images, changes, self.side, self.channels)

    def _plan_changes(self, stored: int, drawn: torch.Tensor) -> torch.Tensor:
        """What ``see_images`` does to each image; ``stored`` is the side of the images."""
        mirrored = torch.where(drawn[:, 0] < 0.5, -1.0, 1.0)
        if self.augment == "shift":
            mirrored = mirrored.abs()
        share, reach = self._size_window(stored, drawn)
        place = torch.zeros(len(drawn), 2, 3)
        place[:, 0, 0], place[:, 1, 1] = share * mirrored, share
        place[:, :, 2] = (2 * drawn[:, 2:4] - 1) * reach[:, None]
        if self.augment == "strong":
            place[:, :, :2] = _make_turns(drawn[:, 6]) @ place[:, :, :2]
        parts = [place.reshape(-1, 6)]
        if self.augment in ("full", "strong"):
            parts.append(1 + SHADE * (2 * drawn[:, 4:6] - 1))
        if self.augment == "strong":
            least, most = COVER
            half = (least + (most - least) * drawn[:, 10:12]) / 2
            parts += [1 + COLOUR * (2 * drawn[:, 7:8] - 1), drawn[:, 8:10], half]
        return torch.cat(parts, dim=1)

    def _size_window(self, stored: int, drawn: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """The share of the image's side that is seen, and how far it may be moved."""
        larger = self.side > SMALL and stored >= self.stored
        share = torch.full((len(drawn),), 1 / MARGIN if larger else 1.0)
        if self.augment in ("full", "strong"):
            share = share * (0.7 + 0.3 * drawn[:, 1])
        reach = (1 - share).clamp(min=0.0 if larger else 0.25)
        return share, reach


def _make_turns(drawn: torch.Tensor) -> torch.Tensor:
    """Rotations by up to ``TURN`` either way, (n, 2, 2)."""
    angle = TURN * (2 * drawn - 1)
    rows = (angle.cos(), -angle.sin(), angle.sin(), angle.cos())
    return torch.stack(rows, dim=1).reshape(-1, 2, 2)
