"""Small files in the layouts of the publishers, for the tests of the readers."""

from __future__ import annotations

import gzip
import io
import json
import os
import zipfile
from collections.abc import Iterable
from pathlib import Path

import numpy as np
from PIL import Image

from rankbits.papers import protocol
from rankbits.papers.publishers import cifar, cub, fashion_mnist, omniglot
from rankbits.train import TrainConfig, features
from rankbits.train.source import read_source

NETWORK = "efficientnet-lite0"


def unsummed(monkeypatch):
    """What the tests make has other sums than what the publishers made."""
    for module in (cifar, fashion_mnist):
        monkeypatch.setattr(module, "SUMS", {})
    monkeypatch.setattr(omniglot, "SUMS", dict.fromkeys(omniglot.SUMS, None))


def write(path: Path, content: bytes | str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def records(heads: np.ndarray, seed: int) -> bytes:
    """CIFAR's records: labels, then planes. The first pixels tell the rows apart."""
    pixels = np.random.default_rng(seed).integers(0, 256, (len(heads), 8), dtype=np.uint8)
    planes = np.zeros((len(heads), 3072), np.uint8)
    planes[:, :8] = pixels
    return np.concatenate([heads.astype(np.uint8), planes], axis=1).tobytes()


def make_cifar10(root: Path, per_class: int = 720) -> Path:
    labels = np.tile(np.arange(10), per_class).reshape(6, -1)
    for seed, (name, part) in enumerate(zip(cifar.BATCHES, labels, strict=True)):
        write(root / "cifar-10-batches-bin" / name, records(part[:, None], seed))
    return root


def make_cifar100(root: Path) -> Path:
    for seed, name in enumerate(("train", "test")):
        fine = np.arange(200) % 100
        heads = np.stack([fine // 5, fine], axis=1)
        write(root / "cifar-100-binary" / f"{name}.bin", records(heads, seed))
    write(
        root / "cifar-100-binary" / "coarse_label_names.txt", "\n".join(f"c{i}" for i in range(20))
    )
    return root


def idx(values: np.ndarray) -> bytes:
    return (
        bytes((0, 0, 8, values.ndim))
        + np.array(values.shape, ">u4").tobytes()
        + values.astype(np.uint8).tobytes()
    )


def make_fashion(root: Path, train: int = 11_000, test: int = 200) -> Path:
    draw = np.random.default_rng(0)
    for part, rows in (("train", train), ("t10k", test)):
        images = draw.integers(0, 256, (rows, 2, 4), dtype=np.uint8)
        folder = root / "fashion-mnist"
        write(folder / f"{part}-images-idx3-ubyte.gz", gzip.compress(idx(images), 1))
        write(folder / f"{part}-labels-idx1-ubyte.gz", gzip.compress(idx(np.arange(rows) % 10)))
    return root


def png(pixels: np.ndarray, mode: str | None = None) -> bytes:
    out = io.BytesIO()
    image = Image.fromarray(pixels)
    (image.convert(mode) if mode else image).save(out, "PNG")
    return out.getvalue()


def drawing(number: int) -> bytes:
    """A drawing of Omniglot: one bit a pixel, ink black on white."""
    pixels = np.full((105, 105), 255, np.uint8)
    pixels[number % 105, : 1 + number // 105] = 0
    return png(pixels, "1")


def make_omniglot(root: Path, packed: bool = True) -> Path:
    """Two alphabets of two characters and three drawings each, then one of two."""
    number = 0
    for part, alphabets in (("background", ("Latin", "Greek")), ("evaluation", ("ULOG",))):
        files = {}
        for alphabet in alphabets:
            for character in ("character01", "character02"):
                for one in range(3):
                    number += 1
                    name = f"images_{part}/{alphabet}/{character}/{number:04}_{one}.png"
                    files[name] = drawing(number)
        if packed:
            archive = root / "omniglot" / f"images_{part}.zip"
            archive.parent.mkdir(parents=True, exist_ok=True)
            with zipfile.ZipFile(archive, "w") as target:
                for name, content in files.items():
                    target.writestr(name, content)
        else:
            for name, content in files.items():
                write(root / "omniglot" / name, content)
    return root


def make_nus_wide(root: Path, labels: np.ndarray, absent: tuple[int, ...] = ()) -> Path:
    """``labels`` is (n, concepts) of 0 and 1."""
    folder = root / "nus-wide"
    names = [f"tag{i % 3}\\{i:04}_{i}.jpg" for i in range(len(labels))]
    write(folder / "ImageList" / "Imagelist.txt", "\r\n".join(names) + "\r\n")
    for column in range(labels.shape[1]):
        text = "".join(f"{int(value)}\n" for value in labels[:, column])
        write(folder / "Groundtruth" / "AllLabels" / f"Labels_c{column:02}.txt", text)
    for i, name in enumerate(names):
        if i not in absent:
            write(folder / "Flickr" / name.replace("\\", "/"), str(i))
    return root


def show_images(root: Path, names: Iterable[Path] = ()) -> Path:
    """Real images in place of what stands for them under a folder, and at ``names``: one of sixteen
    colours each."""
    colours = [io.BytesIO() for _ in range(16)]
    for i, file in enumerate(colours):
        Image.new("RGB", (24, 20), (16 * i, 80, 255 - 16 * i)).save(file, "JPEG")
    kept = [write(root / ".colours" / f"{i}.jpg", f.getvalue()) for i, f in enumerate(colours)]
    standing = [p for kind in ("jpg", "JPG", "JPEG") for p in root.rglob(f"*.{kind}")]
    for i, path in enumerate([*(p for p in standing if p not in kept), *names]):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.unlink(missing_ok=True)
        os.link(kept[i % 16], path)
    return root


def make_coco(root: Path, train: int, val: int) -> Path:
    """Every tenth image has no label; image i has labels 7 i and 7 i + 3 of the 80."""
    kinds = [{"id": 3 * i + 1, "name": f"thing{i}"} for i in range(80)]
    start = 0
    for part, rows in (("train", train), ("val", val)):
        images = [{"id": 10 * (start + i), "file_name": f"{start + i}.jpg"} for i in range(rows)]
        notes = [
            {"image_id": 10 * (start + i), "category_id": 3 * ((7 * i + more) % 80) + 1}
            for i in range(rows)
            if i % 10
            for more in (0, 3, 3)
        ]
        table = {"images": images, "annotations": notes, "categories": kinds}
        write(root / "coco" / "annotations" / f"instances_{part}2014.json", json.dumps(table))
        start += rows
    write(root / "coco" / "train2014" / "1.jpg", "")
    return root


def make_imagenet100(root: Path, train: int, val: int, classes: int) -> Path:
    for part, rows in (("train", train), ("val", val)):
        for wnid in range(classes):
            for i in range(rows):
                write(root / "imagenet100" / part / f"n{wnid:08}" / f"{i:04}.JPEG", f"{wnid} {i}")
    return root


def make_products(
    root: Path, train: int = 3, test: int = 2, kinds: tuple[str, ...] = ("coffee_maker", "bicycle")
) -> Path:
    folder = root / "Stanford_Online_Products"
    number = 0
    for part, classes in (
        ("train", range(1, train + 1)),
        ("test", range(train + 1, train + test + 1)),
    ):
        lines = ["image_id class_id super_class_id path"]
        for product in classes:
            kind, name = len(kinds) - product % len(kinds), kinds[product % len(kinds)]
            for i in range(3):
                number += 1
                lines.append(f"{number} {product} {kind} {name}_final/{product}_{i}.JPG")
                write(folder / f"{name}_final" / f"{product}_{i}.JPG", str(number))
        write(folder / f"Ebay_{part}.txt", "\n".join(lines) + "\n")
    return root


def make_inshop(root: Path, more: Iterable[tuple[int, str, tuple[str, ...]]] = ()) -> Path:
    rows = []
    for item, clothes, parts in (
        (1, "WOMEN/Dresses", ("train", "train")),
        (2, "MEN/Denim", ("train", "train", "train")),
        (7, "WOMEN/Dresses", ("query", "gallery", "gallery")),
        (9, "WOMEN/Tees_Tanks", ("query", "gallery")),
        *more,
    ):
        for i, part in enumerate(parts):
            name = f"img/{clothes}/id_{item:08}/{i:02}_1_front.jpg"
            write(root / "inshop" / "Img" / name, f"{item} {i}")
            rows.append(f"{name}      id_{item:08} {part}")
    head = f"{len(rows)}\nimage_name item_id evaluation_status\n"
    write(root / "inshop" / "Eval" / "list_eval_partition.txt", head + "\n".join(rows) + "\n")
    return root


def make_vehicleid(root: Path, sizes: tuple[int, ...] = (800,)) -> Path:
    folder = root / "VehicleID_V1.0"
    tests = [(f"test_list_{size}", (20, 21)) for size in sizes]
    for name, vehicles in (("train_list", (10, 11, 12)), *tests):
        lines = [f"{100 * v + i:07} {v}" for v in vehicles for i in range(3)]
        write(folder / "train_test_split" / f"{name}.txt", "\n".join(lines) + "\n")
        for line in lines:
            write(folder / "image" / f"{line.split()[0]}.jpg", line)
    write(folder / "attribute" / "model_attr.txt", "10 5\n12 77\n20 5\n")
    return root


def with_features(monkeypatch, root: Path, data: str) -> None:
    """Features of the images in the cache, where no network has to make them: noisy classes."""

    def made(examples, *_, **__):
        draw = np.random.default_rng(0)
        middles = draw.normal(5.0, 1.0, (100, 32))
        noise = draw.normal(0.0, 1.0, (len(examples), 32))
        return (middles[examples.labels] + noise).astype(np.float16)

    monkeypatch.setattr(features, "_embed_images", made)
    read_source(TrainConfig(root=str(root), features=NETWORK), protocol(data, root))


def make_cub(root: Path, per_kind: int = 4) -> Path:
    """200 kinds, the photographs of each of one colour; two of a family differ a little."""
    words = sorted(cub.FAMILY_OF)
    for number in range(cub.CLASSES):
        folder = root / "CUB_200_2011" / "images" / f"{number + 1:03}.{words[number % len(words)]}"
        folder.mkdir(parents=True, exist_ok=True)
        for i in range(per_kind):
            colour = (number % 16 * 16, number // 16 * 16, 40 * i)
            Image.new("RGB", (40, 32), colour).save(folder / f"{i}.jpg")
    return root
