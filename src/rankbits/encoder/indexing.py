"""Indexes that remember their encoder, and what their ids stand for."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from tqdm import tqdm

from rankbits import _check
from rankbits.data.items import Items, read_items
from rankbits.encoder.encoder import Encoder
from rankbits.encoder.files import load_encoder
from rankbits.encoder.texts import take_texts
from rankbits.indexes import addresses
from rankbits.indexes.index import Index
from rankbits.models.sentences import SentenceModel
from rankbits.train.sentences import describe_cut

ROWS = 4096  # inputs encoded and added at a time; whole parts, where texts are kept by parts
SHOWN = 10  # unreadable inputs that are named


def make_index(
    encoder: Encoder | str | os.PathLike[str],
    inputs: Items | Sequence[str] | str | os.PathLike[str],
    address: str | os.PathLike[str],
    *,
    say: Callable[[str], None] | None = None,
    device: str = "auto",
    **options: Any,
) -> Index:
    """Encode ``inputs`` and put them into the index at ``address``, made where it is not there.

    The index remembers the encoder's fingerprint, where the encoder and the inputs lie, and the
    inputs' ids, so that it can be asked, judged and served without being told again. Inputs that
    cannot be read are left out, and ``say`` is told of them. An encoder that is given by its folder
    is put on ``device`` (as ``load`` does). ``options`` are those of ``open_index``.

    >>> import tempfile
    >>> import rankbits as rb
    >>> x = np.random.default_rng(0).normal(size=(100, 16)).astype(np.float32)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     np.save(f"{folder}/x.npy", x)
    ...     encoder = rb.Encoder.of(rb.Projection(8).fit(x))
    ...     encoder.save(f"{folder}/x.encoder")
    ...     with make_index(encoder, f"{folder}/x.npy", f"{folder}/x.index") as index:
    ...         index.search(x[:2], k=1).distances.tolist()
    [[0], [0]]
    """
    if not isinstance(encoder, Encoder):
        encoder = load_encoder(encoder, device=device)
    source = _absolute(inputs) if isinstance(inputs, (str, os.PathLike)) else None
    items = read_inputs(encoder, inputs)
    tell = say or (lambda line: print(line, file=sys.stderr, flush=True))
    index = addresses.open_index(address, encoder.bits, **options)
    try:
        _remember(index, encoder, source)
        left_out = cut = 0
        with tqdm(total=len(items), unit=" items", desc="index", disable=None) as bar:
            for start in range(0, len(items), ROWS):
                rows = np.arange(start, min(start + ROWS, len(items)))
                part = items.subset(rows)
                embedded = encoder.embed_readable(part)
                if len(embedded.rows):
                    codes = encoder.encode_embeddings(embedded.embeddings)
                    index.add(codes, part.ids[embedded.rows])
                for sentence in embedded.failed[: max(0, SHOWN - left_out)]:
                    tell(f"left out: {sentence}")
                left_out += len(embedded.failed)
                cut += embedded.cut
                bar.update(len(rows))
        if left_out:
            tell(f"{left_out:,} of {len(items):,} inputs cannot be read and were left out.")
        if cut and isinstance(encoder.network, SentenceModel):
            tell(describe_cut(encoder.network, cut))
    except BaseException:
        index.close()
        raise
    index.encoder = encoder
    return index


def open_index(
    address: str | os.PathLike[str],
    bits: int | None = None,
    *,
    encoder: Encoder | str | os.PathLike[str] | None = None,
    device: str = "auto",
    **options: Any,
) -> Index:
    """Open the index at ``address``, or make it there where ``bits`` are given, with its encoder.

    A path or ``file:path`` is a file, ``graph:path`` one that a graph searches approximately;
    ``duckdb:path``, ``postgresql://...`` and ``milvus:path.db`` or ``milvus:http://...`` are
    databases, each behind an extra of its name. ``?table=name`` at the end of those three names the
    table. ``options`` are those of the class: ``mode="r"`` for reading only, ``table=``, a graph's
    ``effort=``, PostgreSQL's ``index="hnsw"``. ``encoder`` replaces the one that the index
    remembers, and must be the same one, wherever it lies now; its network is put on ``device``, as
    ``load`` does.

    >>> import tempfile, pathlib
    >>> from rankbits import pack
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "codes.index"
    >>> with open_index(path, bits=3) as index:
    ...     _ = index.add(pack([[1, 1, 1], [-1, 1, -1]]))
    >>> with open_index(f"file:{path}", mode="r") as index:
    ...     index.search(pack([[-1, 1, -1]]), k=1).ids
    array([[1]])
    """
    index = addresses.open_index(address, bits, **options)
    try:
        index.encoder = _find_encoder(index, encoder, device)
    except BaseException:
        index.close()
        raise
    return index


def needs_encoder(index: Index) -> Encoder:
    """The encoder of an index; refuses in one sentence where there is none to load."""
    encoder = index.encoder
    if isinstance(encoder, Encoder):
        return encoder
    place = index.facts.get("encoder")
    if place is None:
        _check.refuse(
            "This index was made of codes and knows no encoder: ask it with codes, or give the "
            "encoder (--encoder)."
        )
    _check.refuse(
        f"The encoder of this index was at {place}, which is gone: give where it is now "
        "(--encoder)."
    )


def read_inputs(encoder: object, inputs: Items | Sequence[str] | str | os.PathLike[str]) -> Items:
    """Read items as an encoder does: what may be read in two ways is texts to one of texts."""
    if isinstance(inputs, Items):
        return inputs
    texts = isinstance(encoder, Encoder) and encoder.reads.kind == "texts"
    columns = encoder.columns if isinstance(encoder, Encoder) else ()
    if isinstance(inputs, (str, os.PathLike)):
        return read_items(inputs, texts=texts, columns=columns)
    items = take_texts(inputs) if texts else inputs
    if not isinstance(items, Items):
        _check.refuse(f"The inputs must be a file or a folder; got {type(inputs).__name__}.")
    return items


def read_index_items(index: Index) -> Items | None:
    """Read what the ids of an index stand for from its inputs; None where they are not known."""
    place = index.facts.get("inputs")
    if place is None or not Path(place).exists():
        return None
    return read_inputs(index.encoder, place)


def _find_encoder(
    index: Index, given: Encoder | str | os.PathLike[str] | None, device: str
) -> Encoder | None:
    if given is None:
        place = index.facts.get("encoder")
        if place is None or not Path(place).exists():
            return None
        given = place
    found = given if isinstance(given, Encoder) else load_encoder(given, device=device)
    if index.fingerprint is not None and found.fingerprint != index.fingerprint:
        where = "The encoder" if found.folder is None else f"The encoder at {found.folder}"
        _check.refuse(
            f"{where} is {found.fingerprint}; this index holds codes of encoder "
            f"{index.fingerprint}. Codes of different encoders cannot be compared."
        )
    _check.same_bits(found.bits, index.bits)
    return found


def _remember(index: Index, encoder: Encoder, source: str | None) -> None:
    held = index.fingerprint
    if held is not None and held != encoder.fingerprint:
        _check.refuse(
            f"This index holds codes of encoder {held}; got inputs for encoder "
            f"{encoder.fingerprint}. Codes of different encoders cannot be compared."
        )
    if held is None and index.count():
        _check.refuse(
            "This index holds codes of an unknown encoder; put the inputs into a new one."
        )
    facts = {**index.facts, "fingerprint": encoder.fingerprint}
    if encoder.folder is not None:
        facts["encoder"] = _absolute(encoder.folder)
    if source is not None:
        facts["inputs"] = source
    if facts != dict(index.facts):
        index.remember(facts)


def _absolute(path: str | os.PathLike[str]) -> str:
    return str(Path(path).resolve())
