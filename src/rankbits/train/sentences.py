"""Embed texts with a sentence model, and keep the embeddings on disk, a part at a time.

The parts lie in the folder ``texts`` of the data root. The name of a part depends on its texts and
on everything that changes their embeddings. So a killed run goes on where it was, and ``rankbits
index`` finds what ``rankbits fit`` has embedded.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from rankbits import _check
from rankbits._files import data_root, write_whole
from rankbits._progress import Meter
from rankbits.data.texts import Texts
from rankbits.models.sentences import SentenceModel
from rankbits.train.embed import Embedded

ROWS = 1024  # texts of a part
STEP = 256  # texts between two updates of the progress bar
FEW = 64  # parts with fewer texts get no file


def embed_texts(
    model: SentenceModel,
    texts: Texts,
    *,
    queries: bool = False,
    batch_size: int | None = None,
    progress: bool = False,
) -> Embedded:
    """Embed texts; texts of similar length share a batch. Rows without a text are left out, and
    ``cut`` counts the texts that are longer than the model reads. ``queries``: use the model's
    prompt for queries, where it has one."""
    rows = texts.readable
    parts, cut = [], 0
    with Meter("embed", len(rows), "texts", shown=progress) as meter:
        for part in filter(None, _split(texts)):
            path = _find_path(model, part, queries)
            embedded = _read_part(path, len(part), model.dim)
            if embedded is None:
                embedded = _embed_part(model, part, queries, batch_size or 32, meter)
                _write_part(path, *embedded)
            else:
                meter.update(len(part))
            parts.append(embedded[0])
            cut += embedded[1]
    embeddings = np.concatenate(parts) if parts else np.empty((0, model.dim), np.float32)
    return Embedded(embeddings, rows, texts.sentences, cut)


def is_kept(model: SentenceModel, texts: Texts) -> bool:
    """Whether all embeddings of texts are on disk, apart from parts too small for a file."""
    paths = (_find_path(model, part, False) for part in _split(texts))
    return all(path is None or path.is_file() for path in paths)


def describe_cut(model: SentenceModel, cut: int) -> str:
    """Say how many texts are longer than the model reads."""
    texts = "1 text is" if cut == 1 else f"{cut:,} texts are"
    return (
        f"{texts} longer than the {model.longest:,} tokens that the model reads: only the "
        "beginning counts."
    )


def _split(texts: Texts) -> Iterator[list[str]]:
    """Yield the readable texts of each part."""
    rows = texts.readable
    for start in range(0, len(texts), ROWS):
        yield texts.values[rows[(rows >= start) & (rows < start + ROWS)]].tolist()


def _embed_part(
    model: SentenceModel, texts: Sequence[str], queries: bool, batch_size: int, meter: Meter
) -> tuple[np.ndarray, int]:
    """Return the embeddings of texts, and how many of the texts were cut."""
    order = sorted(range(len(texts)), key=lambda row: -len(texts[row]))
    embeddings, cut = np.empty((len(texts), model.dim), np.float32), 0
    for start in range(0, len(order), STEP):
        rows = order[start : start + STEP]
        batch = [texts[row] for row in rows]
        embeddings[rows] = model.embed(batch, queries=queries, batch_size=batch_size)
        cut += model.count_cut(batch)
        meter.update(len(rows))
    return _check.finite("embeddings", embeddings), cut


def _find_path(model: SentenceModel, texts: Sequence[str], queries: bool) -> Path | None:
    """Return the path of a part's file; None where the part is too small for one."""
    if len(texts) < FEW:
        return None
    settings = json.dumps([model.settings(), queries], sort_keys=True)
    digest = hashlib.blake2b(settings.encode(), digest_size=16)
    for text in texts:
        raw = text.encode("utf-8", "surrogatepass")
        digest.update(len(raw).to_bytes(8, "little") + raw)
    return data_root() / "texts" / f"{digest.hexdigest()}.npz"


def _read_part(path: Path | None, rows: int, dim: int) -> tuple[np.ndarray, int] | None:
    if path is None or not path.is_file():
        return None
    try:
        with open(path, "rb") as file, np.load(file, allow_pickle=False) as arrays:
            embeddings, cut = arrays["embeddings"], int(arrays["cut"])
    except Exception:  # the file is damaged, so its texts are embedded again
        return None
    whole = embeddings.shape == (rows, dim) and embeddings.dtype == np.float32
    return (embeddings, cut) if whole else None


def _write_part(path: Path | None, embeddings: np.ndarray, cut: int) -> None:
    if path is None:
        return
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, lambda file: np.savez(file, embeddings=embeddings, cut=np.array(cut)))
    except (OSError, _check.Refusal):  # without the file the texts are embedded again next time
        return
