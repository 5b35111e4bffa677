"""The command that serves: an index over HTTP, with its page."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from rankbits._check import refuse
from rankbits._option import option
from rankbits.indexes import HammingIndex
from rankbits.indexes.addresses import open_index

TOKEN = "RANKBITS_TOKEN"


@dataclass(frozen=True)
class Serve:
    """Serve an index over HTTP: search, add, remove, and a page to look at it."""

    name: ClassVar[str] = "serve"
    places: ClassVar[tuple[str, ...]] = ("index",)

    index: str | None = option(None, "where the index is, as rankbits index was told")
    model: str | None = option(
        None, "makes codes of vectors or images: a run's folder, a retriever's, or a quantizer"
    )
    items: str | None = option(None, "what ids stand for: a folder of images, or a .csv or .tsv")
    compare: str | None = option(
        None, "embeddings of the items (with labels, ids), to compare several codes of them"
    )
    report: str | None = option(None, "a report in JSON (default: that of the run)")
    host: str = option("127.0.0.1", "address to listen on; 0.0.0.0 is every network")
    port: int = option(8080, "port to listen on; 0 for any free one")
    token: str | None = option(None, f"what writers must show (or ${TOKEN}); none: read-only")

    def work(self) -> None:
        from rankbits.serve import Service, read_comparison, read_encoder, read_items, serve

        if not self.index:
            refuse("Give the index: rankbits serve INDEX.")
        token = self.token or os.environ.get(TOKEN) or None
        encoder = read_encoder(self.model) if self.model else None
        report = self.report or (encoder.report if encoder else None)
        index = open_index(self.index, mode="w" if token else "r")
        try:
            strings = index._now().strings if isinstance(index, HammingIndex) else None
            items = read_items(self.items, strings) if self.items else None
            service = Service(
                index,
                encoder=encoder,
                items=items,
                compare=read_comparison(self.compare, index.bits, items) if self.compare else None,
                report=read_report(report) if report else None,
                token=token,
            )
            serve(service, host=self.host, port=self.port)
        finally:
            index.close()


def read_report(path: str | Path) -> dict[str, Any]:
    """What ``report.to_json`` wrote."""
    source = Path(path)
    if not source.is_file():
        refuse(f"{source} does not exist or is not a file.")
    try:
        found = json.loads(source.read_text("utf-8"))
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict) or "figures" not in found:
        refuse(f"{source} is not a report in JSON, as rankbits evaluate --json prints it.")
    return found
