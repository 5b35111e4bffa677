"""Make and open indexes that remember their encoder and their inputs."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from rankbits import _check
from rankbits._progress import Meter, print_line
from rankbits.data.items import Items, read_items
from rankbits.encoder.encoder import Encoder
from rankbits.encoder.files import load_encoder
from rankbits.encoder.stored import embed_parts
from rankbits.encoder.texts import take_texts
from rankbits.indexes import addresses
from rankbits.indexes.index import Index
from rankbits.models.sentences import SentenceModel
from rankbits.train.sentences import describe_cut

ROWS = 4096  # inputs encoded and added at a time; a multiple of train.sentences.ROWS
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
    """Encode ``inputs`` and add them to the index at ``address``, which is made if there is none.

    The index remembers the encoder's fingerprint, the paths of the encoder and of the inputs, and
    the inputs' ids, so that nobody has to name them again to search, judge or serve it. Inputs that
    cannot be read are left out and reported to ``say``. If ``encoder`` is a folder, it is loaded on
    ``device``, as by ``load``. ``options`` are those of ``open_index``.

    >>> import tempfile
    >>> import numpy as np
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
    source = _make_absolute(inputs) if isinstance(inputs, (str, os.PathLike)) else None
    items = read_inputs(encoder, inputs)
    say = say or print_line
    index = addresses.open_index(address, encoder.bits, **options)
    try:
        _remember(index, encoder, source)
        left_out = cut = 0
        with Meter("index", len(items), "items") as meter:
            for part, embedded in embed_parts(encoder, items, ROWS):
                if len(embedded.rows):
                    codes = encoder.encode_embeddings(embedded.embeddings)
                    index.add(codes, part.ids[embedded.rows])
                for sentence in embedded.failed[: max(0, SHOWN - left_out)]:
                    say(f"left out: {sentence}")
                left_out += len(embedded.failed)
                cut += embedded.cut
                meter.update(len(part))
        if left_out:
            say(f"{left_out:,} of {len(items):,} inputs cannot be read and were left out.")
        if cut and isinstance(encoder.network, SentenceModel):
            say(describe_cut(encoder.network, cut))
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
    """Open the index at ``address`` with its encoder; ``bits`` make an index if there is none.

    A path or ``file:path`` is a file, ``graph:path`` one that a graph searches approximately;
    ``duckdb:path``, ``postgresql://...`` and ``milvus:path.db`` or ``milvus:http://...`` are
    databases, and each needs the extra of its name. ``?table=name`` at the end of those three names
    the table. ``options`` are those of the class: ``mode="r"`` for reading only, ``table=``, a
    graph's ``effort=``, PostgreSQL's ``index="hnsw"``. ``encoder`` says where the encoder of the
    index is now; its fingerprint must be the one that the index remembers. Its network is put on
    ``device``, as by ``load``.

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


def require_encoder(index: Index) -> Encoder:
    """The encoder of an index; refuses if it has none."""
    encoder = index.encoder
    if isinstance(encoder, Encoder):
        return encoder
    path = index.facts.get("encoder")
    if path is None:
        _check.refuse(
            "This index was made of codes and knows no encoder: search it with codes, or give the "
            "encoder (--encoder)."
        )
    _check.refuse(
        f"The encoder of this index is no longer at {path}: say where it is now (--encoder)."
    )


def read_inputs(encoder: object, inputs: Items | Sequence[str] | str | os.PathLike[str]) -> Items:
    """Read inputs as items; for an encoder of texts, a source that holds others too gives texts."""
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
    """Read the inputs of an index as items; None if they are unknown or no longer there."""
    path = index.facts.get("inputs")
    if path is None or not Path(path).exists():
        return None
    return read_inputs(index.encoder, path)


def _find_encoder(
    index: Index, encoder: Encoder | str | os.PathLike[str] | None, device: str
) -> Encoder | None:
    """``encoder``, or else the one that the index remembers; None if that is not there."""
    if encoder is None:
        encoder = index.facts.get("encoder")
        if encoder is None or not Path(encoder).exists():
            return None
    if not isinstance(encoder, Encoder):
        encoder = load_encoder(encoder, device=device)
    if index.fingerprint is not None and encoder.fingerprint != index.fingerprint:
        where = "The encoder" if encoder.folder is None else f"The encoder at {encoder.folder}"
        _check.refuse(
            f"{where} is {encoder.fingerprint}; this index holds codes of encoder "
            f"{index.fingerprint}. Codes of different encoders cannot be compared."
        )
    _check.same_bits(encoder.bits, index.bits)
    return encoder


def _remember(index: Index, encoder: Encoder, source: str | None) -> None:
    """Write the encoder and the source of the inputs into the index; refuses codes of another."""
    stored = index.fingerprint
    if stored is not None and stored != encoder.fingerprint:
        _check.refuse(
            f"This index holds codes of encoder {stored}; got inputs for encoder "
            f"{encoder.fingerprint}. Codes of different encoders cannot be compared."
        )
    if stored is None and index.count():
        _check.refuse(
            "This index holds codes of an unknown encoder; put the inputs into a new one."
        )
    facts = {**index.facts, "fingerprint": encoder.fingerprint}
    if encoder.folder is not None:
        facts["encoder"] = _make_absolute(encoder.folder)
    if source is not None:
        facts["inputs"] = source
    if facts != dict(index.facts):
        index.remember(facts)


def _make_absolute(path: str | os.PathLike[str]) -> str:
    return str(Path(path).resolve())
