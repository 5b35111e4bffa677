"""Embed texts with a sentence model, a part at a time, each kept on the disk.

The parts lie in the folder ``texts`` of the data root. A part is named by its texts and by all
that changes their embeddings, so that a killed run goes on where it was, and ``rankbits index``
finds what ``rankbits fit`` has embedded.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from rankbits import _check
from rankbits._files import data_root, write_whole
from rankbits.data.texts import Texts
from rankbits.models.sentences import SentenceModel
from rankbits.train.embed import Embedded
from rankbits.train.meter import Meter

ROWS = 1024  # texts of a part
STEP = 256  # texts between two signs of progress
FEW = 64  # texts that are not worth a file


def embed_texts(
    model: SentenceModel,
    texts: Texts,
    *,
    queries: bool = False,
    batch_size: int | None = None,
    progress: bool = False,
) -> Embedded:
    """Embed texts; those of like length share a batch. Rows that are no text are left out, and
    ``cut`` counts the texts that are longer than the model reads. ``queries``: with the model's
    prompt for queries, where it has one."""
    rows = texts.readable
    parts, cut = [], 0
    with Meter("embed", len(rows), "texts", shown=progress) as meter:
        for start in range(0, len(texts), ROWS):
            within = rows[(rows >= start) & (rows < start + ROWS)]
            if not len(within):
                continue
            part = texts.values[within].tolist()
            place = _find_place(model, part, queries)
            embedded = _read(place, len(part), model.dim)
            if embedded is None:
                embedded = _embed(model, part, queries, batch_size or 32, meter)
                _write(place, *embedded)
            else:
                meter.update(len(part))
            parts.append(embedded[0])
            cut += embedded[1]
    embeddings = np.concatenate(parts) if parts else np.empty((0, model.dim), np.float32)
    return Embedded(embeddings, rows, texts.sentences, cut)


def is_kept(model: SentenceModel, texts: Texts) -> bool:
    """Whether the embeddings of texts lie on the disk, so that they cost no time."""
    rows = texts.readable
    for start in range(0, len(texts), ROWS):
        part = texts.values[rows[(rows >= start) & (rows < start + ROWS)]].tolist()
        place = _find_place(model, part, False)
        if place is not None and not place.is_file():
            return False
    return True


def describe_cut(model: SentenceModel, cut: int) -> str:
    """What a person should know of texts that are longer than the model reads."""
    texts = "1 text is" if cut == 1 else f"{cut:,} texts are"
    return (
        f"{texts} longer than the {model.longest:,} tokens that the model reads: only the "
        "beginning counts."
    )


def _embed(
    model: SentenceModel, texts: Sequence[str], queries: bool, batch_size: int, meter: Meter
) -> tuple[np.ndarray, int]:
    """The embeddings of texts, and how many of them were cut."""
    order = sorted(range(len(texts)), key=lambda row: -len(texts[row]))
    embeddings, cut = np.empty((len(texts), model.dim), np.float32), 0
    for start in range(0, len(order), STEP):
        rows = order[start : start + STEP]
        chosen = [texts[row] for row in rows]
        embeddings[rows] = model.embed(chosen, queries=queries, batch_size=batch_size)
        cut += model.count_cut(chosen)
        meter.update(len(rows))
    return _check.finite("embeddings", embeddings), cut


def _find_place(model: SentenceModel, texts: Sequence[str], queries: bool) -> Path | None:
    """The file of a part; None where it is too small for one."""
    if len(texts) < FEW:
        return None
    about = json.dumps([model.settings(), queries], sort_keys=True)
    digest = hashlib.blake2b(about.encode(), digest_size=16)
    for text in texts:
        raw = text.encode("utf-8", "surrogatepass")
        digest.update(len(raw).to_bytes(8, "little") + raw)
    return data_root() / "texts" / f"{digest.hexdigest()}.npz"


def _read(place: Path | None, rows: int, dim: int) -> tuple[np.ndarray, int] | None:
    if place is None or not place.is_file():
        return None
    try:
        with open(place, "rb") as file, np.load(file, allow_pickle=False) as arrays:
            embeddings, cut = arrays["embeddings"], int(arrays["cut"])
    except Exception:  # a damaged file is made again
        return None
    whole = embeddings.shape == (rows, dim) and embeddings.dtype == np.float32
    return (embeddings, cut) if whole else None


def _write(place: Path | None, embeddings: np.ndarray, cut: int) -> None:
    if place is None:
        return
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        write_whole(place, lambda file: np.savez(file, embeddings=embeddings, cut=np.array(cut)))
    except (OSError, _check.Refusal):  # without it the texts are embedded again
        return
