"""Commands that remember and find: index, repair and search."""

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

SHOWN = 20  # queries whose results are printed
WIDTH = 100  # characters of a text that are printed


def read_ids(given: str | None, columns: dict[str, np.ndarray], codes: str) -> Any:
    """Ids of their own file (an array, or text with one a line), of a column, or None."""
    if given is None:
        return columns.get("ids")
    if given in columns:
        return columns[given]
    path = Path(given)
    if not path.suffix:
        listed = ", ".join(sorted(columns)) or "nothing else"
        refuse(f"ids must be a file or a column of {codes}, which holds {listed}; got '{given}'.")
    if path.suffix == ".txt":
        if not path.is_file():
            refuse(f"{path} does not exist or is not a file.")
        try:
            text = path.read_text("utf-8")
        except UnicodeDecodeError:
            refuse(f"{path} must be text in UTF-8, one id a line.")
        return text.removesuffix("\n").split("\n") if text else []
    found = read_columns(path, "ids")
    if "ids" not in found:
        refuse(f"{path} holds no array called 'ids'.")
    return found["ids"]


def read_queries(path: str, index: Index, ask: str | None) -> Codes | Questions:
    """Codes of a file of codes; or codes or questions of inputs, through the index's encoder."""
    if Path(path).suffix in (".npz", ".safetensors") and is_codes(path):
        return read_codes(path, ask)
    encoder = require_encoder(index)
    return encoder.make_queries(encoder.embed(path, queries=True, progress=True), ask)


def read_codes(path: str, ask: str | None) -> Codes:
    """Codes of a file, which must not be asked as floats."""
    if ask == "questions":
        refuse(f"{path} holds codes, whose floats are gone: --ask floats needs the inputs.")
    return Codes.load(path)


def parse_ask(ask: str | None) -> str | None:
    """What ``--ask`` means to an encoder: codes for bits, questions for floats."""
    if ask is None:
        return None
    return {"bits": "codes", "floats": "questions"}[_check.choice("ask", ask, ("bits", "floats"))]


def shown(address: str) -> str:
    """An address without the name and password that a database's may carry."""
    return re.sub(r"//[^/@]*@", "//", address)


@dataclass(frozen=True)
class BuildIndex:
    """Make or extend an index (a file, DuckDB, PostgreSQL or Milvus) from inputs and their encoder,
    or from a file of codes."""

    name: ClassVar[str] = "index"
    places: ClassVar[tuple[str, ...]] = ("encoder", "inputs")

    encoder: str | None = option(None, "what rankbits train or fit wrote, or a file of codes alone")
    inputs: str | None = option(
        None, "a folder of images or texts, a table, or vectors: .npy, .npz, .safetensors, .parquet"
    )
    out: str | None = option(
        None,
        "a path, graph:PATH, duckdb:PATH, postgresql://..., milvus:PATH or milvus:http://...",
        "o",
    )
    ids: str | None = option(
        None,
        "ids of codes: .npy, .npz, .txt (one a line) or a column of their file (default: ids)",
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
            refuse("--ids belong to a file of codes; inputs have ids of their own.")
        with make_index(self.encoder, self.inputs, self.out, device=self.device) as index:
            print(
                f"{self.inputs} -> {shown(self.out)}, {index.count():,} items of {index.bits} bits"
            )

    def _add_codes(self, path: str, out: str) -> None:
        if Path(path).is_dir():
            refuse("Give the inputs too: rankbits index ENCODER INPUTS -o ADDRESS.")
        codes, columns = Codes.load_columns(path)
        ids = read_ids(self.ids, columns, path)
        with open_index(out, codes.bits) as index:
            index.add(codes, ids)
            print(f"{codes} -> {shown(out)}, {index.count():,} in it")


@dataclass(frozen=True)
class Repair:
    """Write a new index file of all that can be read in a damaged one, and name what is missing."""

    name: ClassVar[str] = "repair"
    places: ClassVar[tuple[str, ...]] = ("index",)

    index: str | None = option(None, "the damaged file; it stays as it is")
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
    """Find the nearest codes in an index: a table of a few, a file or JSON of many."""

    name: ClassVar[str] = "search"
    places: ClassVar[tuple[str, ...]] = ("address", "queries")

    address: str | None = option(None, "the address of the index, as given to rankbits index")
    queries: str | None = option(
        None, "an image, a sentence, a file or folder of either, vectors, or codes (.npz, ...)"
    )
    encoder: str | None = option(None, "where the index's encoder lies now, if it was moved")
    k: int = option(10, "how many for each query", "k")
    radius: int | None = option(None, "instead: everything at this Hamming distance or less")
    ask: str | None = option(
        None, "bits: by Hamming distance; floats: by the queries' floats (default: the encoder's)"
    )
    where: str | None = option(None, "only rows of this SQL condition (DuckDB)")
    out: str | None = option(None, "write ids and distances here, .npz", "o")
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
            results = self._by_ray(self.queries)
        else:
            results, texts = self._here(self.queries)
        if self.out:
            write_results(self.out, results)
            print(f"{len(results):,} queries, {results.ids.size:,} found -> {self.out}")
        elif self.json:
            rows = [{"ids": i.tolist(), "distances": d.tolist()} for i, d in each(results)]
            print(json.dumps({"queries": len(results), "results": rows}))
        else:
            print(table(results, texts))

    def _here(self, path: str) -> tuple[Results, dict[Any, str]]:
        """The results, and how the texts begin that they are, where they are texts."""
        options: dict[str, Any] = {}
        with self._open() as index:
            queries = read_queries(path, index, self._ask())
            if self.where is not None:
                if not hasattr(index, "scan"):
                    refuse("--where filters by columns of DuckDB; this index has none.")
                options["where"] = self.where
            if self.radius is not None:
                results = index.within(queries, self.radius, **options)
            else:
                results = index.search(queries, self.k, **options)
            return results, {} if self.out or self.json else read_texts(index, results)

    def _open(self) -> Index:
        assert self.address is not None
        return open_index(self.address, encoder=self.encoder, device=self.device, mode="r")

    def _ask(self) -> str | None:
        if self.radius is not None:
            if self.ask == "floats":
                refuse("--radius is a Hamming distance: it is asked by bits.")
            return "codes"
        return parse_ask(self.ask)

    def _by_ray(self, path: str) -> Results:
        from rankbits.scale import search

        assert self.address is not None
        if self.where is not None:
            refuse("--where and --ray cannot be used together.")
        if Path(path).is_file() and is_codes(path):
            queries: Codes | Questions = read_codes(path, self._ask())
        else:
            with self._open() as index:
                queries = read_queries(path, index, self._ask())
        k = self.k if self.radius is None else None
        assert self.ray is not None
        return search(queries, self.address, k, radius=self.radius, address=self.ray)


def each(found: Results) -> list[tuple[np.ndarray, np.ndarray]]:
    return [found[i] for i in range(len(found))]


def write_results(path: str, found: Results) -> None:
    """Plain arrays: ``ids``, ``distances`` and, within a radius, ``offsets``."""
    ids = found.ids.astype(str) if found.ids.dtype == object else found.ids
    arrays = {"ids": ids, "distances": found.distances}
    if found.offsets is not None:
        arrays["offsets"] = found.offsets
    write_whole(path, lambda file: np.savez(file, **arrays))  # type: ignore[arg-type]


def read_texts(index: Index, results: Results) -> dict[Any, str]:
    """The title and the beginning of each text that was found, by id; of other items nothing."""
    if getattr(getattr(index.encoder, "reads", None), "kind", "") != "texts":
        return {}
    items = read_index_items(index)
    if items is None or not isinstance(items.inputs, Texts):
        return {}
    wanted, lines = set(results.ids.reshape(-1).tolist()), {}
    for row, name in enumerate(items.ids.tolist()):
        if name in wanted:
            title = items.titles[row] if items.titles else ""
            text = ": ".join(filter(None, (title, str(items.inputs.values[row]))))
            lines[name] = make_snippet(text, WIDTH)
    return lines


def table(found: Results, texts: Mapping[Any, str] = MappingProxyType({})) -> str:
    """The results of the first queries, a line each; control characters of ids are spelled out."""
    lines = [("query", "rank", "distance", "id", "text" if texts else "")]
    for query, (ids, distances) in enumerate(each(found)[:SHOWN]):
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
    if len(found) > SHOWN:
        text.append(f"and {len(found) - SHOWN:,} more queries: -o RESULTS.npz writes all.")
    return "\n".join(text)
