"""Bits of texts made by the commands themselves: ``rankbits train`` compared with ``rankbits fit``.

    python benchmarks/quality_train_texts.py --save

SciFact is trained with its training claims and their judgements, CLINC150 with its intents
(``_text_sets.py`` splits them). Commands have their defaults, and MiniLM reads 256 tokens, its
default. A test query of SciFact is "new" if none of its abstracts is in a training pair.
"""

from __future__ import annotations

import argparse
import os
from typing import Any

import rankbits as rb
from _bench import Bench
from _text_sets import SETS, Split, TextSet, read_set
from rankbits.texts import train_texts


def make_encoders(data: TextSet, bits: int, seed: int) -> dict[str, rb.Encoder]:
    """The encoder of each command."""
    documents = [data.texts[row] for row in data.documents]
    known: dict[str, Any] = {"labels": data.train[:, 1]}
    if data.judgements is not None:
        queries = sorted(data.judgements)
        known = {
            "queries": [data.texts[row] for row in queries],
            "qrels": {
                str(number): {str(d): grade for d, grade in data.judgements[row].items()}
                for number, row in enumerate(queries)
            },
        }
    return {
        "fit": rb.fit_texts(documents, bits=bits, seed=seed),
        "train": train_texts(documents, bits=bits, seed=seed, **known),
    }


def judge(encoder: rb.Encoder, data: TextSet, split: Split) -> list[dict[str, Any]]:
    """A row for floats, for Hamming distance and for float questions."""
    queries = encoder.embed([data.texts[row] for row in split.queries], queries=True)
    database = encoder.embed([data.texts[row] for row in split.database])
    codes, new = encoder.encode_embeddings(database), split.find_new(data.train)
    asked = {
        "floats": (queries, database),
        "Hamming": (encoder.encode_embeddings(queries), codes),
        "questions": (encoder.ask_embeddings(queries), codes),
    }
    rows = []
    for way, sides in asked.items():
        report = rb.evaluate(*sides, **split.grading(), k=10, gain="linear", only=("NDCG@10",))
        figure = report.figures["NDCG@10"]
        row = {"asked": way, "NDCG@10": figure.value}
        row |= {"NDCG@10 worst": figure.worst, "NDCG@10 best": figure.best}
        if new is not None:
            row["NDCG@10 new"] = float(report.per_query["NDCG@10"][new].mean())
        rows.append(row)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sets", nargs="+", default=list(SETS))
    parser.add_argument("--bits", type=int, default=256)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2, 3])
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--save", action="store_true", help="write benchmarks/results as they come")
    asked = parser.parse_args()
    bench = Bench("quality_train_texts", threads=asked.threads, seed=asked.seeds[0])
    for name in asked.sets:
        data = read_set(name)
        for seed in asked.seeds:
            for command, encoder in make_encoders(data, asked.bits, seed).items():
                for row in judge(encoder, data, data.test):
                    facts = {"set": name, "command_run": command, "bits": asked.bits}
                    bench.note(f"{name}, {command}", **facts, **row | {"seed": seed})
            if asked.save:
                bench.add()
                bench.rows.clear()


if __name__ == "__main__":
    main()
