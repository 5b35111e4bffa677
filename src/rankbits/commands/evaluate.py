"""The command that judges an index, two files of codes or a TREC run."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

from rankbits._check import refuse
from rankbits._option import DEVICE, option


@dataclass(frozen=True)
class Evaluate:
    """Judge an index by queries with labels, two files of codes, or a TREC run by its qrels; tied
    items count as the mean over all their orders."""

    name: ClassVar[str] = "evaluate"
    places: ClassVar[tuple[str, ...]] = ("index", "queries")

    index: str | None = option(
        None, "an index made from inputs; or codes of queries, saved with labels"
    )
    queries: str | None = option(
        None, "queries of the index: a folder, a table, vectors; or codes of the database"
    )
    labels: str | None = option(None, "for an index: a file of the queries' labels")
    encoder: str | None = option(None, "for an index: the encoder's folder, if it was moved")
    ask: str | None = option(
        None, "for an index: search by bits, or by the queries' floats (default: the encoder's)"
    )
    run: str | None = option(None, "a TREC run file: query Q0 document rank score tag")
    qrels: str | None = option(
        None, "judgements for an index or a run: query 0 document grade, or BEIR's form"
    )
    k: tuple[int, ...] = option((10, 100, 1000), "cutoffs, as in 10,100,1000", "k")
    radius: int = option(2, "Hamming radius of the lookup figures")
    relevance: str = option("any", "any: shares a label; count: number of shared labels")
    gain: str = option("exp2", "gain of NDCG: exp2 (2^grade - 1) or linear")
    tie_break: bool = option(
        False, "break ties by the embeddings saved with the codes (H2Q's protocol)"
    )
    exclude_self: bool = option(
        False, "the queries are the database: leave each out of its own ranking"
    )
    negative: str = option("refuse", "negative grades in qrels: refuse, or zero for not relevant")
    missing: str = option("zero", "judged queries the run lacks: zero, or skip as trec_eval does")
    json: bool = option(False, "print JSON")
    markdown: bool = option(False, "print a Markdown table")
    html: str | None = option(None, "also write a self-contained page here")
    ray: str | None = option(None, "use a Ray cluster: local, auto, host:port or ray://host:port")
    device: str = option("auto", DEVICE)

    def work(self) -> None:
        if self.run or (self.qrels and not self.index):
            report = self._judge_run()
        elif not self.index or is_codes_file(self.index):
            report = self._judge_codes()
        else:
            report = self._judge_index(self.index)
        if self.html:
            report.to_html(self.html)
        print(report.to_json() if self.json else report.to_markdown() if self.markdown else report)

    def _judge_run(self) -> Any:
        from rankbits.data.trec import read_judged
        from rankbits.evaluate import evaluate_run

        if not (self.run and self.qrels) or self.index:
            refuse("A run is judged by two files: --run RUN --qrels QRELS, and no codes.")
        judged = read_judged(self.run, self.qrels, negative=self.negative, missing=self.missing)
        return evaluate_run(judged, k=self.k, gain=self.gain)

    def _judge_index(self, address: str) -> Any:
        from rankbits.commands.store import parse_ask
        from rankbits.data.labels import read_labels_file
        from rankbits.encoder.indexing import open_index
        from rankbits.encoder.judging import evaluate_index

        if not self.queries:
            refuse("Give the queries too: rankbits evaluate INDEX QUERIES.")
        if self.ray or self.tie_break or self.exclude_self:
            refuse("--ray, --tie-break and --exclude-self are for two files of codes.")
        labels = read_labels_file(self.labels) if self.labels else None
        ask = parse_ask(self.ask)
        with open_index(address, encoder=self.encoder, device=self.device, mode="r") as index:
            return evaluate_index(
                index, self.queries, labels, ask=ask, qrels=self.qrels, **self._options
            )

    def _judge_codes(self) -> Any:
        from rankbits.evaluate import evaluate
        from rankbits.types import Codes

        if not self.index or not (self.queries or self.exclude_self):
            refuse(
                "Give an index and its queries, two files of codes (QUERIES DATABASE), or --run "
                "RUN --qrels QRELS."
            )
        queries, of_queries = Codes.load_columns(self.index)
        database, of_database = (
            Codes.load_columns(self.queries) if self.queries else (queries, of_queries)
        )
        paths = (self.index, self.queries or self.index)
        for path, columns in zip(paths, (of_queries, of_database), strict=True):
            for name in ("labels", "embeddings")[: 1 + self.tie_break]:
                if name not in columns:
                    refuse(f"{path} holds no {name}: save them with codes.save(path, {name}=...).")
        judge: Any = evaluate
        if self.ray:
            from rankbits import scale

            judge = partial(scale.evaluate, address=self.ray)
        labels = of_queries["labels"], of_database["labels"]
        options = {**self._options, "exclude_self": self.exclude_self}
        if self.tie_break:
            options["tie_break"] = of_queries["embeddings"], of_database["embeddings"]
        return judge(queries, database, *labels, **options)

    @property
    def _options(self) -> dict[str, Any]:
        names = ("k", "radius", "relevance", "gain")
        return {name: getattr(self, name) for name in names}


def is_codes_file(path: str) -> bool:
    """Say by its ending whether a path is a file of codes; it need not exist."""
    return path.endswith((".npz", ".safetensors"))
