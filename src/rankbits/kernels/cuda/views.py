"""Views of images in Triton: a kernel reads bytes and writes floats, and stores nothing between.

Plain torch needs a grid of places, a resampling and several passes over the result, all larger than
the stored images.
"""

from __future__ import annotations

import functools

import torch
import triton
import triton.language as tl

from rankbits.kernels.cuda.launch import Launch, divide_up

PIXELS = 512  # pixels of a program


@triton.jit
def _mix(images, upper, lower, left, right, down, across, CHANNEL: tl.constexpr):
    """Interpolate one channel between four stored pixels."""
    top = tl.load(images + upper + left + CHANNEL).to(tl.float32) * (1 - across)
    top += tl.load(images + upper + right + CHANNEL).to(tl.float32) * across
    below = tl.load(images + lower + left + CHANNEL).to(tl.float32) * (1 - across)
    below += tl.load(images + lower + right + CHANNEL).to(tl.float32) * across
    return (top * (1 - down) + below * down) * (1 / 255)


@triton.jit
def _find_place(centre, size):
    """A place in [-1, 1] as two neighbouring pixels and the share of the second."""
    place = tl.minimum(tl.maximum(((centre + 1) * size - 1) * 0.5, 0.0), size - 1.0)
    first = tl.floor(place)
    before = first.to(tl.int64)
    return before, tl.minimum(before + 1, size - 1), place - first


@triton.jit
def _look(
    images, changes, row, pixel, height, width, side,
    FIELDS: tl.constexpr, STORED: tl.constexpr, SEEN: tl.constexpr,
):  # fmt: skip
    """Red, green and blue, or three times grey, of image ``row`` at pixels of the view."""
    x = (2 * (pixel % side) + 1).to(tl.float32) / side - 1
    y = (2 * (pixel // side) + 1).to(tl.float32) / side - 1
    at = changes + row * FIELDS
    right = tl.load(at) * x + tl.load(at + 1) * y + tl.load(at + 2)
    down = tl.load(at + 3) * x + tl.load(at + 4) * y + tl.load(at + 5)
    left, right, across = _find_place(right, width)
    upper, lower, down = _find_place(down, height)
    left, right = left * STORED, right * STORED
    upper = (row * height + upper) * width * STORED
    lower = (row * height + lower) * width * STORED
    red = _mix(images, upper, lower, left, right, down, across, 0)
    green, blue = red, red
    if STORED == 3:
        green = _mix(images, upper, lower, left, right, down, across, 1)
        blue = _mix(images, upper, lower, left, right, down, across, 2)
        if SEEN == 1:
            red = 0.299 * red + 0.587 * green + 0.114 * blue
            green, blue = red, red
    return red, green, blue


@triton.jit(do_not_specialize=["height", "width", "side"])
def _level_kernel(
    images, changes, levels, height, width, side,
    FIELDS: tl.constexpr, STORED: tl.constexpr, SEEN: tl.constexpr, PIXELS: tl.constexpr,
):  # fmt: skip
    """The mean of each view."""
    row = tl.program_id(0).to(tl.int64)
    total = tl.zeros((PIXELS,), tl.float32)
    for start in range(0, side * side, PIXELS):
        pixel = start + tl.arange(0, PIXELS)
        inside = pixel < side * side
        red, green, blue = _look(
            images, changes, row, tl.minimum(pixel, side * side - 1), height, width, side,
            FIELDS, STORED, SEEN,
        )  # fmt: skip
        total += tl.where(inside, red + green + blue, 0.0)
    tl.store(levels + row, tl.sum(total, axis=0) / (3 * side * side))


@triton.jit(do_not_specialize=["height", "width", "side"])
def _view_kernel(
    images, changes, levels, out, height, width, side,
    FIELDS: tl.constexpr, STORED: tl.constexpr, SEEN: tl.constexpr, PIXELS: tl.constexpr,
    SHADED: tl.constexpr, STRONG: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(1).to(tl.int64)
    pixel = tl.program_id(0) * PIXELS + tl.arange(0, PIXELS)
    inside = pixel < side * side
    pixel = tl.minimum(pixel, side * side - 1)
    red, green, blue = _look(images, changes, row, pixel, height, width, side, FIELDS, STORED, SEEN)
    at = changes + row * FIELDS
    if SHADED:
        level, contrast = tl.load(levels + row), tl.load(at + 6)
        bright = level * tl.load(at + 7)
        red = (red - level) * contrast + bright
        green = (green - level) * contrast + bright
        blue = (blue - level) * contrast + bright
        if STRONG:
            grey, colour = (red + green + blue) / 3, tl.load(at + 8)
            red = grey + (red - grey) * colour
            green = grey + (green - grey) * colour
            blue = grey + (blue - grey) * colour
            down = tl.abs((pixel // side + 0.5) / side - tl.load(at + 9))
            across = tl.abs((pixel % side + 0.5) / side - tl.load(at + 10))
            hidden = (down < tl.load(at + 11)) & (across < tl.load(at + 12))
            red = tl.where(hidden, bright, red)
            green = tl.where(hidden, bright, green)
            blue = tl.where(hidden, bright, blue)
    to = out + (row * side * side + pixel) * SEEN
    tl.store(to, tl.minimum(tl.maximum(red, 0.0), 1.0), mask=inside)
    if SEEN == 3:
        tl.store(to + 1, tl.minimum(tl.maximum(green, 0.0), 1.0), mask=inside)
        tl.store(to + 2, tl.minimum(tl.maximum(blue, 0.0), 1.0), mask=inside)


def see_images(
    images: torch.Tensor, changes: torch.Tensor, side: int, channels: int
) -> torch.Tensor:
    images, fields = images.contiguous(), changes.shape[1]
    shape = (len(images), channels, side, side)
    out = torch.empty(
        shape, device=images.device, dtype=torch.float32, memory_format=torch.channels_last
    )
    find_levels, view = _plan(images.shape, fields, side, channels)
    levels = out.new_empty(len(images))
    if fields > 6:
        find_levels(images, changes, levels)
    view(images, changes, levels, out)
    return out


@functools.lru_cache(256)
def _plan(shape: torch.Size, fields: int, side: int, channels: int) -> tuple[Launch, Launch]:
    rows, height, width, stored = shape
    sizes = {"FIELDS": fields, "STORED": stored, "SEEN": channels, "PIXELS": PIXELS}
    numbers, kinds = (height, width, side), {"SHADED": fields > 6, "STRONG": fields > 8}
    blocks = divide_up(side * side, PIXELS)
    return (
        Launch(_level_kernel, (rows,), numbers, sizes),
        Launch(_view_kernel, (blocks, rows), numbers, sizes | kinds),
    )
