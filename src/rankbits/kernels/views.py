"""Views of images: moved, mirrored, turned, shaded, coloured and covered in one pass."""

from __future__ import annotations

import torch
import torch.nn.functional as F

from rankbits.kernels import backend


def see_images(
    images: torch.Tensor, changes: torch.Tensor, side: int, channels: int
) -> torch.Tensor:
    """Views (n, channels, side, side) in [0, 1] of images (n, height, width, 1 or 3), uint8.

    ``changes`` (n, 6, 8 or 13) holds for each image the six numbers of an affine map from places of
    the view to places of the image, both in [-1, 1]; the factors of contrast and brightness; the
    factor of colour and the rectangle that is covered: the row and column of its centre and half
    its height and width, in shares of the view. Places outside an image show its nearest border
    pixel.
    """
    if backend.uses_triton(images):
        return backend.load("cuda", "views").see_images(images, changes, side, channels)
    pixels = to_floats(images, channels)
    maps = changes[:, :6].reshape(-1, 2, 3)
    shape = [len(pixels), channels, side, side]
    grid = F.affine_grid(maps, shape, align_corners=False)
    views = F.grid_sample(pixels, grid, padding_mode="border", align_corners=False)
    if changes.shape[1] > 6:
        contrast, brightness = changes[:, 6:8, None, None].split(1, dim=1)
        mean = views.mean(dim=(1, 2, 3), keepdim=True)
        views = (views - mean) * contrast + mean * brightness
    if changes.shape[1] > 8:
        grey = views.mean(dim=1, keepdim=True)
        views = grey + (views - grey) * changes[:, 8:9, None, None]
        views = _cover_part(views, changes[:, 9:13])
    return views.clamp(0, 1)


def to_floats(images: torch.Tensor, channels: int) -> torch.Tensor:
    """Stored images (n, height, width, 1 or 3) as floats (n, channels, height, width); grey becomes
    colour, or colour grey, where ``channels`` asks for it."""
    pixels = images.permute(0, 3, 1, 2).to(torch.float32) / 255
    if pixels.shape[1] == 1 and channels == 3:
        pixels = pixels.expand(-1, 3, -1, -1)
    elif pixels.shape[1] == 3 and channels == 1:
        weights = torch.tensor([0.299, 0.587, 0.114], device=pixels.device)
        pixels = (pixels * weights[:, None, None]).sum(1, keepdim=True)
    return pixels.contiguous()


def _cover_part(images: torch.Tensor, part: torch.Tensor) -> torch.Tensor:
    """Replace a rectangle of each image by the image's mean."""
    inside = []
    for axis, size in enumerate(images.shape[2:]):
        at = (torch.arange(size, device=images.device) + 0.5) / size
        inside.append((at[None] - part[:, axis, None]).abs() < part[:, axis + 2, None])
    hidden = (inside[0][:, :, None] & inside[1][:, None, :])[:, None]
    return torch.where(hidden, images.mean(dim=(1, 2, 3), keepdim=True), images)
