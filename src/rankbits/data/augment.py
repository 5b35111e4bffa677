"""What the network sees of an image: its size, and random changes in training.

Images come as they are stored, uint8 (n, height, width, channels), and are changed where they lie,
on the GPU if there is one: one resampling makes crop, shift, scale and mirror at once. Which crop
an image gets is drawn for the batch of all processes from one seed, so that it depends neither on
chunks nor on who embeds the image, and comes out the same in a second pass or a resumed run.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F

KINDS = ("none", "flip", "shift", "crop", "full", "strong")
MOVED = ("shift", "crop", "full", "strong")
MARGIN = 8 / 7  # images are stored larger than they are seen, 256 for 224, where crops are drawn
SMALL = 64  # up to this side an image is shifted by an eighth instead, its border repeated
SHADE = 0.2
TURN = 0.26  # of a strong view, radians: 15 degrees
COLOUR = 0.5
COVER = (0.15, 0.45)  # sides of what is covered, in shares of the image


@dataclass(frozen=True)
class View:
    """Images as floats (n, channels, side, side) in [0, 1].

    ``augment``: ``"none"``; ``"flip"``, mirrored half of the time; ``"shift"``, another place but
    never mirrored (letters); ``"crop"``, another place and mirrored, as FastAP trains; ``"full"``,
    that, and another size and brightness; ``"strong"``, that, turned, paler or more colourful, and
    a part of it covered. ``mirror``: outside training an image is seen a second time, mirrored.

    >>> view = View(side=2, channels=3, augment="flip")
    >>> view.plain(torch.full((1, 4, 4, 1), 255, dtype=torch.uint8)).shape
    torch.Size([1, 3, 2, 2])
    """

    side: int
    channels: int = 3
    augment: str = "none"
    mirror: bool = False

    @property
    def stored(self) -> int:
        """The side images are decoded to."""
        crops = self.augment in MOVED and self.side > SMALL
        return round(self.side * MARGIN) if crops else self.side

    def plain(self, images: torch.Tensor) -> torch.Tensor:
        """The middle of the image, as a query or a database item is seen."""
        pixels = self._to_floats(images)
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

    def train(self, images: torch.Tensor, drawn: torch.Tensor) -> torch.Tensor:
        """Images as a step of training sees them; ``drawn`` are their rows of ``draw``."""
        if self.augment == "none" or len(images) == 0:
            return self.plain(images)
        drawn = drawn.to(images.device)
        mirrored = torch.where(drawn[:, 0] < 0.5, -1.0, 1.0)
        if self.augment == "flip":
            pixels = self.plain(images)
            return torch.where(mirrored[:, None, None, None] < 0, pixels.flip(3), pixels)
        if self.augment == "shift":
            mirrored = mirrored.abs()
        share, reach = self._draw_window(images, drawn)
        centre = (2 * drawn[:, 2:4] - 1) * reach[:, None]
        place = images.new_zeros(len(images), 2, 3, dtype=torch.float32)
        place[:, 0, 0], place[:, 1, 1] = share * mirrored, share
        place[:, :, 2] = centre
        if self.augment == "strong":
            place[:, :, :2] = _make_turns(drawn[:, 6]) @ place[:, :, :2]
        pixels = self._to_floats(images)
        shape = [len(pixels), pixels.shape[1], self.side, self.side]
        grid = F.affine_grid(place, shape, align_corners=False)
        seen = F.grid_sample(pixels, grid, padding_mode="border", align_corners=False)
        if self.augment in ("full", "strong"):
            shade = 1 + SHADE * (2 * drawn[:, 4:6] - 1)
            level = seen.mean(dim=(1, 2, 3), keepdim=True)
            seen = (seen - level) * shade[:, :1, None, None] + level * shade[:, 1:, None, None]
        if self.augment == "strong":
            seen = _cover_part(_change_colours(seen, drawn[:, 7]), drawn[:, 8:12])
        return seen.clamp(0, 1)

    def _draw_window(
        self, images: torch.Tensor, drawn: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Share of the image's side that is seen, and how far its centre may lie off."""
        stored = self.side > SMALL and images.shape[1] >= self.stored
        share = torch.full((len(images),), 1 / MARGIN if stored else 1.0, device=images.device)
        if self.augment in ("full", "strong"):
            share = share * (0.7 + 0.3 * drawn[:, 1])
        reach = (1 - share).clamp(min=0.0 if stored else 0.25)
        return share, reach

    def _to_floats(self, images: torch.Tensor) -> torch.Tensor:
        pixels = images.permute(0, 3, 1, 2).to(torch.float32) / 255
        if pixels.shape[1] == 1 and self.channels == 3:
            pixels = pixels.expand(-1, 3, -1, -1)
        elif pixels.shape[1] == 3 and self.channels == 1:
            weights = torch.tensor([0.299, 0.587, 0.114], device=pixels.device)
            pixels = (pixels * weights[:, None, None]).sum(1, keepdim=True)
        return pixels.contiguous()


def _make_turns(drawn: torch.Tensor) -> torch.Tensor:
    """Rotations by up to ``TURN`` either way, (n, 2, 2)."""
    angle = TURN * (2 * drawn - 1)
    rows = (angle.cos(), -angle.sin(), angle.sin(), angle.cos())
    return torch.stack(rows, dim=1).reshape(-1, 2, 2)


def _change_colours(images: torch.Tensor, drawn: torch.Tensor) -> torch.Tensor:
    """Colours nearer to grey or farther from it, by up to ``COLOUR``."""
    by = (1 + COLOUR * (2 * drawn - 1))[:, None, None, None]
    grey = images.mean(dim=1, keepdim=True)
    return grey + (images - grey) * by


def _cover_part(images: torch.Tensor, drawn: torch.Tensor) -> torch.Tensor:
    """A rectangle of each image replaced by the image's mean; ``drawn``: its centre and sides."""
    least, most = COVER
    half = (least + (most - least) * drawn[:, 2:4]) / 2
    height, width = images.shape[2:]
    inside = []
    for axis, size in ((0, height), (1, width)):
        at = (torch.arange(size, device=images.device) + 0.5) / size
        inside.append((at[None] - drawn[:, axis, None]).abs() < half[:, axis, None])
    hidden = (inside[0][:, :, None] & inside[1][:, None, :])[:, None]
    return torch.where(hidden, images.mean(dim=(1, 2, 3), keepdim=True), images)
