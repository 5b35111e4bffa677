"""Commands that make, repair and search an index."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar

import numpy as np

from rankbits import _check
from rankbits._check import refuse
from rankbits._files import write_whole
from rankbits._option import DEVICE, option
from rankbits.data.arrays import read_columns
from rankbits.data.texts import Texts, make_snippet
from rankbits.encoder.indexing import open_index, read_index_items, require_encoder
from rankbits.indexes.index import Index
from rankbits.types import Codes, Questions, Results
from rankbits.types.codes import is_codes

MOST_SHOWN = 20  # queries whose results are printed
WIDTH = 100  # characters of a text that are printed


def read_ids(source: str | None, columns: dict[str, np.ndarray], codes: str) -> Any:
    """Read ids from a file (an array, or text with one a line) or a column; None: no ids."""
    if source is None:
        return columns.get("ids")
    if source in columns:
        return columns[source]
    path = Path(source)
    if not path.suffix:
        names = ", ".join(sorted(columns)) or "nothing else"
        refuse(f"ids must be a file or a column of {codes}, which holds {names}; got '{source}'.")
    if path.suffix == ".txt":
        if not path.is_file():
            refuse(f"{path} does not exist or is not a file.")
        try:
            text = path.read_text("utf-8")
        except UnicodeDecodeError:
            refuse(f"{path} must be text in UTF-8, one id a line.")
        return text.removesuffix("\n").split("\n") if text else []
    arrays = read_columns(path, "ids")
    if "ids" not in arrays:
        refuse(f"{path} holds no array called 'ids'.")
    return arrays["ids"]


def read_queries(path: str, index: Index, ask: str | None) -> Codes | Questions:
    """Read a file of codes, or make codes or questions of inputs with the index's encoder."""
    if Path(path).suffix in (".npz", ".safetensors") and is_codes(path):
        return read_codes(path, ask)
    encoder = require_encoder(index)
    return encoder.make_queries(encoder.embed(path, queries=True, progress=True), ask)


def read_codes(path: str, ask: str | None) -> Codes:
    """Read a file of codes; a search by floats is refused."""
    if ask == "questions":
        refuse(f"{path} holds codes, not floats: --ask floats needs the inputs.")
    return Codes.load(path)


def parse_ask(ask: str | None) -> str | None:
    """Translate ``--ask`` into an encoder's word: codes for bits, questions for floats."""
    if ask is None:
        return None
    return {"bits": "codes", "floats": "questions"}[_check.choice("ask", ask, ("bits", "floats"))]


def hide_password(address: str) -> str:
    """Remove the user name and password that the address of a database may have."""
    return re.sub(r"//[^/@]*@", "//", address)


@dataclass(frozen=True)
class BuildIndex:
    """Make or extend an index (a file, DuckDB, PostgreSQL or Milvus) from inputs and an encoder, or
    from a file of codes."""

    name: ClassVar[str] = "index"
    places: ClassVar[tuple[str, ...]] = ("encoder", "inputs")

    encoder: str | None = option(None, "what rankbits train or fit wrote; or a file of codes")
    inputs: str | None = option(
        None, "a folder of images or texts, a table, or vectors: .npy, .npz, .safetensors, .parquet"
    )
    out: str | None = option(
        None,
        "the address: PATH, graph:PATH, duckdb:PATH, postgresql://..., milvus:PATH or "
        "milvus:http://...",
        "o",
    )
    ids: str | None = option(
        None,
        "ids of the codes: .npy, .npz, .txt (one a line) or a column of their file (default: ids)",
    )
    device: str = option("auto", DEVICE)

    def work(self) -> None:
        if not self.encoder or not self.out:
            refuse("Give all three: rankbits index ENCODER INPUTS -o ADDRESS.")
        if self.inputs is None:
            self._add_codes(self.encoder, self.out)
            return
        from rankbits.encoder import make_index

        if self.ids is not None:
            refuse("--ids is for a file of codes; inputs have ids of their own.")
        with make_index(self.encoder, self.inputs, self.out, device=self.device) as index:
            size = f"{index.count():,} items of {index.bits} bits"
            print(f"{self.inputs} -> {hide_password(self.out)}, {size}")

    def _add_codes(self, path: str, out: str) -> None:
        if Path(path).is_dir():
            refuse("Give the inputs too: rankbits index ENCODER INPUTS -o ADDRESS.")
        codes, columns = Codes.load_columns(path)
        ids = read_ids(self.ids, columns, path)
        with open_index(out, codes.bits) as index:
            index.add(codes, ids)
            print(f"{codes} -> {hide_password(out)}, {index.count():,} in it")


@dataclass(frozen=True)
class Repair:
    """Write all that can be read of a damaged index file to a new one, and list what is missing."""

    name: ClassVar[str] = "repair"
    places: ClassVar[tuple[str, ...]] = ("index",)

    index: str | None = option(None, "the damaged file, which is not changed")
    out: str | None = option(None, "the new file", "o")
    doubtful: bool = option(False, "keep codes whose checksum fails; some of them are wrong")

    def work(self) -> None:
        from rankbits.indexes import repair

        if not self.index or not self.out:
            refuse("Give both: rankbits repair INDEX -o NEW.")
        repaired = repair(self.index, self.out, doubtful=self.doubtful)
        print(f"{self.index} -> {self.out}, {repaired.rows:,} rows saved")
        for part in repaired.missing or ("nothing that was acknowledged",):
            print(f"missing: {part}")


@dataclass(frozen=True)
class Search:
    """Find the nearest items of an index; prints a table or JSON, or writes a file."""

    name: ClassVar[str] = "search"
    places: ClassVar[tuple[str, ...]] = ("address", "queries")

    address: str | None = option(None, "the address of the index, as given to rankbits index")
    queries: str | None = option(
        None, "an image, a sentence, a file or folder of either, vectors, or codes (.npz, ...)"
    )
    encoder: str | None = option(None, "the encoder's folder, if it was moved")
    k: int = option(10, "how many items for each query", "k")
    radius: int | None = option(None, "instead of -k: all items up to this Hamming distance")
    ask: str | None = option(
        None, "search by bits, or by the queries' floats: bits, floats (default: the encoder's)"
    )
    where: str | None = option(None, "only rows that meet this SQL condition (DuckDB)")
    out: str | None = option(None, "a file for ids and distances, .npz", "o")
    json: bool = option(False, "print JSON")
    ray: str | None = option(None, "use a Ray cluster: local, auto, host:port or ray://host:port")
    device: str = option("auto", DEVICE)

    def work(self) -> None:
        if not self.address or not self.queries:
            refuse("Give the index and the queries: rankbits search ADDRESS QUERIES.")
        if self.out and Path(self.out).suffix != ".npz":
            refuse(f"{self.out} must end in .npz.")
        if self.radius is None:
            _check.cutoff(self.k)
        texts: dict[Any, str] = {}
        if self.ray:
            results = self._search_by_ray(self.queries)
        else:
            results, texts = self._search_here(self.queries)
        if self.out:
            write_results(self.out, results)
            print(f"{len(results):,} queries, {results.ids.size:,} found -> {self.out}")
        elif self.json:
            pairs = (results[i] for i in range(len(results)))
            rows = [{"ids": i.tolist(), "distances": d.tolist()} for i, d in pairs]
            print(json.dumps({"queries": len(results), "results": rows}))
        else:
            print(draw_table(results, texts))

    def _search_here(self, path: str) -> tuple[Results, dict[Any, str]]:
        """Search in this process -> the results, and the beginnings of those that are texts."""
        options: dict[str, Any] = {}
        with self._open() as index:
            queries = read_queries(path, index, self._choose_ask())
            if self.where is not None:
                if not hasattr(index, "scan"):
                    refuse("--where is for an index in DuckDB.")
                options["where"] = self.where
            if self.radius is not None:
                results = index.within(queries, self.radius, **options)
            else:
                results = index.search(queries, self.k, **options)
            return results, {} if self.out or self.json else read_texts(index, results)

    def _open(self) -> Index:
        assert self.address is not None
        return open_index(self.address, encoder=self.encoder, device=self.device, mode="r")

    def _choose_ask(self) -> str | None:
        if self.radius is not None:
            if self.ask == "floats":
                refuse("--radius is a Hamming distance, which needs --ask bits.")
            return "codes"
        return parse_ask(self.ask)

    def _search_by_ray(self, path: str) -> Results:
        from rankbits.scale import search

        assert self.address is not None
        if self.where is not None:
            refuse("--where and --ray cannot be used together.")
        if Path(path).is_file() and is_codes(path):
            queries: Codes | Questions = read_codes(path, self._choose_ask())
        else:
            with self._open() as index:
                queries = read_queries(path, index, self._choose_ask())
        k = self.k if self.radius is None else None
        assert self.ray is not None
        return search(queries, self.address, k, radius=self.radius, address=self.ray)


def write_results(path: str, results: Results) -> None:
    """Write the arrays ``ids``, ``distances`` and, within a radius, ``offsets``."""
    ids = results.ids.astype(str) if results.ids.dtype == object else results.ids
    arrays = {"ids": ids, "distances": results.distances}
    if results.offsets is not None:
        arrays["offsets"] = results.offsets
    write_whole(path, lambda file: np.savez(file, **arrays))  # type: ignore[arg-type]


def read_texts(index: Index, results: Results) -> dict[Any, str]:
    """Read the title and the beginning of each text of the results, by id; {} for other items."""
    if getattr(getattr(index.encoder, "reads", None), "kind", "") != "texts":
        return {}
    items = read_index_items(index)
    if items is None or not isinstance(items.inputs, Texts):
        return {}
    found_ids, lines = set(results.ids.reshape(-1).tolist()), {}
    for row, name in enumerate(items.ids.tolist()):
        if name in found_ids:
            title = items.titles[row] if items.titles else ""
            text = ": ".join(filter(None, (title, str(items.inputs.values[row]))))
            lines[name] = make_snippet(text, WIDTH)
    return lines


def draw_table(results: Results, texts: Mapping[Any, str] = MappingProxyType({})) -> str:
    """Draw the results of the first queries, a line each; an unprintable id is spelled as repr."""
    lines = [("query", "rank", "distance", "id", "text" if texts else "")]
    for query in range(min(len(results), MOST_SHOWN)):
        ids, distances = results[query]
        for rank, (name, near) in enumerate(zip(ids.tolist(), distances.tolist(), strict=True), 1):
            plain = name if isinstance(name, int) or name.isprintable() else repr(name)
            far = f"{near:.4g}" if isinstance(near, float) else str(near)
            lines.append((str(query), str(rank), far, str(plain), texts.get(name, "")))
        if not len(ids):
            lines.append((str(query), "-", "-", "nothing", ""))
    widths = [max(len(line[i]) for line in lines) for i in range(4)]
    text = [
        "  ".join([*map(str.rjust, line[:3], widths), line[3].ljust(widths[3]), line[4]]).rstrip()
        for line in lines
    ]
    if len(results) > MOST_SHOWN:
        text.append(f"and {len(results) - MOST_SHOWN:,} more queries: -o RESULTS.npz writes all.")
    return "\n".join(text)
