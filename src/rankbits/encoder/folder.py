"""The folder of an encoder: safetensors and JSON, no code.

```
encoder.json            what the encoder reads, and the version of this layout
quantizer.safetensors   the quantizer, if any
body.safetensors        a frozen network that reads the images, if any
sentences.json          which sentence model reads the texts, if any; its weights lie elsewhere
run.json                the settings of a network that was trained, if any (train/run.py)
model.safetensors       the weights of that network
```

The folder of a training run is an encoder too; it also holds a log and a checkpoint.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Mapping
from dataclasses import asdict
from functools import partial
from pathlib import Path

from rankbits import _check
from rankbits._files import write_whole
from rankbits.encoder.replacing import replace_files
from rankbits.encoder.texts import SENTENCES
from rankbits.train.body import BODY
from rankbits.train.checkpoints import WEIGHTS
from rankbits.train.run import RUN, Inputs

ABOUT, QUANTIZER, VERSION = "encoder.json", "quantizer.safetensors", 1
FILES = (QUANTIZER, BODY, RUN, WEIGHTS, SENTENCES)


def copy_file(source: Path, target: Path) -> None:
    """Copy a file, whole or not at all."""
    with open(source, "rb") as file:
        write_whole(target, partial(shutil.copyfileobj, file))


def make_folder(folder: str | os.PathLike[str]) -> Path:
    """Make the folder for an encoder if there is none; refuses one that holds something else."""
    where = Path(folder)
    if where.exists() and not where.is_dir():
        _check.refuse(f"{where} is a file; an encoder needs a folder.")
    visible = [path for path in where.iterdir() if path.name[0] != "."] if where.is_dir() else []
    if visible and not is_encoder(where):
        _check.refuse(f"{where} is not empty and holds no encoder; give another folder.")
    where.mkdir(parents=True, exist_ok=True)
    return where


def write_encoder(
    folder: Path,
    writers: Mapping[str, Callable[[Path], object]],
    reads: Inputs,
    class_names: tuple[str, ...],
) -> None:
    """Write the files of an encoder, each by its function in ``writers``, and ``encoder.json``,
    which says what the encoder reads and names its classes. After a crash all files are old or all
    are new."""
    about = {"version": VERSION, "reads": asdict(reads), "class_names": list(class_names)}
    text = (json.dumps(about, indent=2) + "\n").encode()
    write_about = partial(write_whole, write=lambda file: file.write(text))
    replace_files(folder, {**writers, ABOUT: write_about}, (ABOUT, *FILES))


def is_encoder(folder: str | os.PathLike[str]) -> bool:
    """Whether a folder holds an encoder or a run."""
    return any((Path(folder) / name).is_file() for name in (ABOUT, RUN))
