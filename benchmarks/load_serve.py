"""The service under load, compared with a plain FastAPI + faiss service and with the bare index.

    python benchmarks/load_serve.py [--seconds 60] [--clients 200] [--rows 1000000] [--save]

All clients are connections of one small process. Each sends a code, waits for the ten nearest, and
sends the next. The services run one after the other in short turns, so that other work on the
machine slows both alike. In between, the bare index answers batches of the size that the service
made. The status and length of every answer are checked, and before timing some answers in full.
"""

import argparse
import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path
from typing import Any

import numpy as np

import rankbits as rb
from _bench import Bench

K, SEED, BITS = 10, 0, 64
TURNS = 3


def codes(rows: int, seed: int) -> rb.Codes:
    packed = np.random.default_rng(seed).integers(0, 256, (rows, BITS // 8), dtype=np.uint8)
    return rb.Codes(packed, BITS)


def plain_service(path: str, port: int) -> None:
    """What one writes in twenty lines: FastAPI, a pydantic body, faiss in a worker thread."""
    import faiss
    import uvicorn
    from fastapi import FastAPI
    from pydantic import BaseModel

    index = faiss.IndexBinaryFlat(BITS)
    index.add(rb.Codes.load(path).packed)
    app = FastAPI()

    class Ask(BaseModel):
        code: str
        k: int = 20

    @app.post("/search")
    def search(ask: Ask) -> dict:
        query = np.frombuffer(bytes.fromhex(ask.code), np.uint8)[None]
        distances, ids = index.search(query, ask.k)
        return {"ids": ids[0].tolist(), "distances": distances[0].tolist()}

    uvicorn.run(app, port=port, log_level="warning")


class Line(asyncio.Protocol):
    """One client: the next request leaves when the last answer is whole."""

    def __init__(self, requests: list[bytes], start: int, until: float, out: dict) -> None:
        self.requests, self.at, self.until, self.out = requests, start, until, out
        self.held, self.wanted = b"", 0

    def connection_made(self, transport: Any) -> None:
        self.transport = transport
        self.ask()

    def ask(self) -> None:
        self.at = (self.at + 1) % len(self.requests)
        self.began = time.perf_counter()
        if self.began > self.until:
            self.transport.close()
        else:
            self.transport.write(self.requests[self.at])

    def data_received(self, data: bytes) -> None:
        self.held = self.held + data if self.held else data
        if not self.wanted:
            end = self.held.find(b"\r\n\r\n")
            if end < 0:
                return
            at = self.held.find(b"content-length: ")
            stop = self.held.find(b"\r\n", at)
            self.wanted = end + 4 + int(self.held[at + 16 : stop])
        if len(self.held) < self.wanted:
            return
        good = self.held.startswith(b"HTTP/1.1 200") and len(self.held) == self.wanted
        self.out["errors"] += not good
        self.out["times"].append(time.perf_counter() - self.began)
        self.held, self.wanted = b"", 0
        self.ask()

    def connection_lost(self, error: Exception | None) -> None:
        self.out["lost"] += time.perf_counter() < self.until
        self.out["open"] -= 1
        if not self.out["open"]:
            self.out["done"].set_result(None)


async def load(port: int, clients: int, seconds: float) -> dict[str, Any]:
    """Latencies of all requests that ``clients`` connections made."""
    loop = asyncio.get_running_loop()
    requests = []
    for row in codes(4096, SEED + 1).packed:
        body = b'{"code":"%s","k":%d,"histogram":false}' % (row.tobytes().hex().encode(), K)
        head = b"POST /search HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\n"
        requests.append(b"%scontent-length: %d\r\n\r\n%s" % (head, len(body), body))
    out: dict[str, Any] = {"errors": 0, "lost": 0, "times": [], "open": clients}
    out["done"] = loop.create_future()
    begin, cpu = time.perf_counter(), time.process_time()
    for i in range(clients):
        line = Line(requests, i * 17, begin + seconds, out)
        await loop.create_connection(lambda line=line: line, "127.0.0.1", port)
    await out["done"]
    spent, cpu = time.perf_counter() - begin, time.process_time() - cpu
    return {"times": out["times"], "errors": out["errors"] + out["lost"], "s": spent, "cpu": cpu}


def loaded(port: int, clients: int, seconds: float) -> dict[str, Any]:
    """``load`` in a process of its own."""
    words = [sys.executable, __file__, "--load", f"{port},{clients},{seconds}"]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "times.npy"
        facts = json.loads(subprocess.check_output([*words, str(path)], text=True))
        return {**facts, "times": np.load(path)}


def free_port() -> int:
    with socket.socket() as made:
        made.bind(("127.0.0.1", 0))
        return made.getsockname()[1]


def ask(port: int, path: str, body: Any = None) -> Any:
    raw = None if body is None else json.dumps(body).encode()
    headers = {"content-type": "application/json"}
    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", raw, headers)
    with urllib.request.urlopen(request, timeout=30) as reply:
        return json.load(reply)


def started(words: list[str], port: int) -> subprocess.Popen:
    process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    for _ in range(600):
        try:
            ask(port, "/search", {"code": "00" * (BITS // 8), "k": 1})
            return process
        except OSError:
            if process.poll() is not None:
                break
            time.sleep(0.1)
    process.kill()
    raise SystemExit(f"{words} did not start.")


def agree(ports: dict[str, int], index: rb.HammingIndex) -> None:
    """The same distances from everybody, before anything is timed."""
    queries = codes(20, SEED + 1)
    wanted = index.search(queries, K)
    for i, row in enumerate(queries.packed):
        asked = {"code": row.tobytes().hex(), "k": K, "histogram": False}
        bands = ask(ports["rankbits serve"], "/search", asked)["bands"]
        ids = [item["id"] for band in bands for item in band["items"]]
        assert ids == [str(x) for x in wanted.ids[i]], "rankbits serve does not agree"
        if "FastAPI + faiss" in ports:
            del asked["histogram"]
            found = ask(ports["FastAPI + faiss"], "/search", asked)["distances"]
            assert found == wanted.distances[i].tolist(), "faiss does not agree"


def bare(index: rb.HammingIndex, batch: int, seconds: float) -> float:
    """Queries a second of the index alone, in batches."""
    parts = [codes(batch, SEED + 2 + i) for i in range(8)]
    done, begin = 0, time.perf_counter()
    while time.perf_counter() - begin < seconds:
        index.search(parts[done // batch % 8], K)
        done += batch
    return done / (time.perf_counter() - begin)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--clients", type=int, default=200)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--save", action="store_true")
    parser.add_argument("--load", help=argparse.SUPPRESS)
    parser.add_argument("--plain", type=int, help=argparse.SUPPRESS)
    parser.add_argument("path", nargs="?", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.plain:
        return plain_service(given.path, given.plain)
    if given.load:
        port, clients, seconds = given.load.split(",")
        import uvloop

        found = uvloop.run(load(int(port), int(clients), float(seconds)))
        np.save(given.path, np.array(found.pop("times")))
        print(json.dumps(found))
        return None
    bench = Bench("load_serve", threads=os.cpu_count() or 1, seed=SEED)
    faiss = bench.peer("faiss", "faiss-cpu")
    with tempfile.TemporaryDirectory() as folder:
        measured(bench, given, Path(folder), faiss is not None)
    if given.save:
        bench.save()
    return None


def measured(bench: Bench, given: argparse.Namespace, folder: Path, peer: bool) -> None:
    database = codes(given.rows, SEED)
    database.save(folder / "codes.npz")
    with rb.open_index(folder / "index", bits=BITS) as made:
        made.add(database)
    index = rb.open_index(folder / "index", mode="r")
    names = ["rankbits serve", *(["FastAPI + faiss"] if peer else [])]
    ports = {name: free_port() for name in names}
    command = [sys.executable, "-m", "rankbits", "serve", str(folder / "index"), "--port"]
    processes = [started([*command, str(ports["rankbits serve"])], ports["rankbits serve"])]
    if peer:
        words = [sys.executable, __file__, "--plain", str(ports[names[1]])]
        processes.append(started([*words, str(folder / "codes.npz")], ports[names[1]]))
    try:
        agree(ports, index)
        found: dict[str, list] = {name: [] for name in names}
        bares: list[float] = []
        before = ask(ports[names[0]], "/stats")
        for name in names:
            loaded(ports[name], given.clients, 2.0)
        for _ in range(TURNS):
            for name in names:
                found[name].append(loaded(ports[name], given.clients, given.seconds / TURNS))
                if name == names[0]:
                    after = ask(ports[name], "/stats")
                    batch = max(1, round(after["mean_batch"]))
                    bares.append(bare(index, batch, min(5.0, given.seconds / TURNS)))
        assert after["searches"] > before["searches"]
    finally:
        for process in processes:
            process.send_signal(signal.SIGTERM)
            process.wait(60)
    rates = {name: [len(f["times"]) / f["s"] for f in parts] for name, parts in found.items()}
    for name, parts in found.items():
        times = 1000 * np.concatenate([f["times"] for f in parts])
        p50, p99 = np.percentile(times, (50, 99)).tolist()
        seconds = sum(f["s"] for f in parts)
        bench.note(
            f"{given.clients} clients, {given.rows:,} x {BITS} bits, k = {K}: {name}",
            requests=len(times),
            errors=sum(f["errors"] for f in parts),
            per_second=round(len(times) / seconds, 1),
            p50_ms=round(p50, 2),
            p99_ms=round(p99, 2),
            clients_share_of_a_core=round(sum(f["cpu"] for f in parts) / seconds, 3),
            turns=[round(rate, 1) for rate in rates[name]],
            exit=processes[names.index(name)].returncode,
        )
    share = np.median(np.divide(rates[names[0]], bares))
    bench.note(
        f"the bare index on batches of {batch}, the mean of the service",
        per_second=round(float(np.median(bares)), 1),
        service_share=round(float(share), 3),
        times_faiss=round(float(np.median(np.divide(*rates.values()))), 2) if peer else None,
    )


if __name__ == "__main__":
    main()
