"""The command that serves an index over HTTP, with its page."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from rankbits._check import refuse
from rankbits._option import DEVICE, option
from rankbits.data.texts import Texts
from rankbits.encoder import Encoder
from rankbits.encoder.finishing import JUDGED
from rankbits.encoder.indexing import open_index, read_index_items
from rankbits.indexes import HammingIndex
from rankbits.indexes.checks import UnknownId
from rankbits.indexes.index import Index
from rankbits.models.sentences import SentenceModel
from rankbits.train.sentences import is_kept

if TYPE_CHECKING:
    from rankbits.serve import Items, SideBySide

MOST_COMPARED = 50_000  # texts whose floats are kept in memory beside the index
TOKEN = "RANKBITS_TOKEN"


@dataclass(frozen=True)
class Serve:
    """Serve an index over HTTP: search, add, remove, and a page that shows it."""

    name: ClassVar[str] = "serve"
    places: ClassVar[tuple[str, ...]] = ("index",)

    index: str | None = option(None, "the address of the index, as given to rankbits index")
    encoder: str | None = option(None, "the encoder's folder (default: as the index remembers)")
    items: str | None = option(
        None, "what ids stand for: a folder or a table (default: the inputs of the index)"
    )
    compare: str | None = option(
        None, "embeddings of the items (with labels, ids), to compare several codes of them"
    )
    report: str | None = option(None, "a report in JSON (default: that of the encoder)")
    host: str = option("127.0.0.1", "address to listen on; 0.0.0.0 is every network")
    port: int = option(8080, "port to listen on; 0 for any free one")
    device: str = option("auto", DEVICE)
    token: str | None = option(None, f"what writers must show (or ${TOKEN}); none: read-only")

    def work(self) -> None:
        from rankbits.serve import Service, read_comparison, serve

        if not self.index:
            refuse("Give the index: rankbits serve INDEX.")
        token = self.token or os.environ.get(TOKEN) or None
        mode = "w" if token else "r"
        index = open_index(self.index, encoder=self.encoder, device=self.device, mode=mode)
        try:
            items = self._read_items(index)
            if self.compare:
                print("fit several codes of the items to compare", file=sys.stderr, flush=True)
            service = Service(
                index,
                encoder=index.encoder if isinstance(index.encoder, Encoder) else None,
                items=items,
                compare=read_comparison(self.compare, index.bits, items)
                if self.compare
                else compare_texts(index),
                report=self._find_report(index),
                token=token,
            )
            serve(service, host=self.host, port=self.port)
        finally:
            index.close()

    def _read_items(self, index: Index) -> Items | None:
        """Read what ids stand for: from --items, or from the inputs that the index remembers."""
        from rankbits.serve import describe_items, read_items

        if self.items:
            return read_items(self.items, index.has_string_ids)
        inputs = read_index_items(index)
        for name in ("encoder", "inputs"):
            path = index.facts.get(name)
            if path is not None and not Path(path).exists() and not getattr(self, name, None):
                print(f"The index's {name} is no longer at {path}.", file=sys.stderr)
        return None if inputs is None else describe_items(inputs)

    def _find_report(self, index: Index) -> dict[str, Any] | None:
        if self.report:
            return read_report(self.report)
        folder = getattr(index.encoder, "folder", None)
        judged = None if folder is None else folder / JUDGED
        return read_report(judged) if judged is not None and judged.is_file() else None


def compare_texts(index: Index) -> SideBySide | None:
    """Compare the texts of an index by bits and by floats, where that takes no time: their
    embeddings are on the disk, or they are few. Otherwise None."""
    from rankbits.serve import compare_with_floats

    encoder, items = index.encoder, read_index_items(index)
    if not isinstance(encoder, Encoder) or items is None or not isinstance(index, HammingIndex):
        return None
    if not isinstance(encoder.network, SentenceModel) or not isinstance(items.inputs, Texts):
        return None
    if len(items) > MOST_COMPARED or not is_kept(encoder.network, items.inputs):
        return None
    try:
        return compare_with_floats(index, encoder, items)
    except UnknownId:  # items were added or removed since
        return None


def read_report(path: str | Path) -> dict[str, Any]:
    """Read what ``report.to_json`` wrote."""
    source = Path(path)
    if not source.is_file():
        refuse(f"{source} does not exist or is not a file.")
    try:
        report = json.loads(source.read_text("utf-8"))
    except (ValueError, RecursionError):
        report = None
    if not isinstance(report, dict) or "figures" not in report:
        refuse(f"{source} is not a report in JSON, as rankbits evaluate --json prints it.")
    return report
