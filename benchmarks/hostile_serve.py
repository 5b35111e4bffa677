"""Time an honest client of a service before, during and after an attack by unfinished connections.

    python benchmarks/hostile_serve.py [--connections 4000] [--seconds 120] [--kinds trailers ...]
                                       [--save]
    python benchmarks/hostile_serve.py --requests 100000 [--save]      # memory without an attack

The honest client sends one search after another, every second one on a new connection. The attack
runs in a process of its own and keeps the given number of connections of one kind open. Each sends
its beginning, then a few bytes every second, and is opened again whenever the service closes it.
The replies to the honest client are counted by status, and the times include refused requests.
"""

import argparse
import asyncio
import http.client
import json
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

import rankbits as rb
from _bench import Bench
from load_serve import BITS, SEED, K, codes, free_port, loaded, started

AROUND = 20.0  # seconds before an attack, and after it
CODE = b"00" * (BITS // 8)
BODY = b'{"code":"%s","k":1,"histogram":false}' % CODE
LONG = b'{"code":"%s","k":1000}' % CODE  # whose answer has 100 KB
POST = b"POST /search HTTP/1.1\r\nHost: localhost\r\n"
WHOLE = POST + b"Content-Length: %d\r\n\r\n" % len(BODY) + BODY
UNREAD = POST + b"Content-Length: %d\r\n\r\n" % len(LONG) + LONG
CHUNKED = POST + b"Transfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n" % (len(BODY), BODY)
# what each connection sends at once, and then every second
KINDS = {
    "nothing is sent": (b"", b""),
    "half a head": (POST + b"X: y\r\n", b"Y: z\r\n"),
    "half a body": (POST + b"Content-Length: 8000000\r\n\r\n" + bytes(1 << 16), b" "),
    "trailers without end": (CHUNKED + b"0\r\n" + b"T: u\r\n" * 5000, b"T: u\r\n"),
    "an empty line after a request": (WHOLE + b"\r\n", b""),
    "half a request after another": (WHOLE + b"GET /health HT", b""),
    "answers that nobody reads": (UNREAD * 60, b""),
}


class Hostile(asyncio.Protocol):
    """One connection of an attack."""

    def __init__(self, attack: dict[str, Any]) -> None:
        self.attack = attack

    def connection_made(self, transport: Any) -> None:
        self.transport = transport
        self.attack["open"].add(self)
        self.attack["made"] += 1
        transport.write(self.attack["start"])
        if self.attack["deaf"]:
            transport.pause_reading()

    def connection_lost(self, error: Exception | None) -> None:
        self.attack["open"].discard(self)


async def attack(kind: str, port: int, connections: int, seconds: float) -> dict[str, int]:
    """Keep so many connections open for so long; how many were, and how many it took."""
    loop = asyncio.get_running_loop()
    start, drip = KINDS[kind]
    facts: dict[str, Any] = {"open": set(), "made": 0, "start": start, "deaf": "nobody" in kind}
    end, most = time.monotonic() + seconds, 0
    while time.monotonic() < end:
        began = time.monotonic()
        while len(facts["open"]) < connections and time.monotonic() < end:
            missing = min(200, connections - len(facts["open"]))
            tried = [
                loop.create_connection(lambda: Hostile(facts), "127.0.0.1", port)
                for _ in range(missing)
            ]
            await asyncio.gather(*tried, return_exceptions=True)
            most = max(most, len(facts["open"]))
        for hostile in list(facts["open"]):
            if drip and not hostile.transport.is_closing():
                hostile.transport.write(drip)
        await asyncio.sleep(max(0.0, 1 - (time.monotonic() - began)))
    return {"most_open": most, "opened": facts["made"]}


def ask_honestly(port: int, seconds: float) -> dict[str, Any]:
    """Times of all questions of one client, and its replies by status."""
    times: list[float] = []
    replies: Counter[str] = Counter()
    kept = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    queries = codes(1024, SEED + 1).packed
    end, at = time.perf_counter() + seconds, 0
    while time.perf_counter() < end:
        body = json.dumps({"code": queries[at % 1024].tobytes().hex(), "k": K, "histogram": False})
        line = kept if at % 2 else http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        began = time.perf_counter()
        try:
            line.request("POST", "/search", body)
            reply = line.getresponse()
            reply.read()
            replies[str(reply.status)] += 1
        except (OSError, http.client.HTTPException) as error:
            replies[type(error).__name__] += 1
            line.close()
        times.append(time.perf_counter() - began)
        if line is not kept:
            line.close()
        at += 1
        time.sleep(0.005)
    kept.close()
    p50, p99, most = np.percentile(1000 * np.array(times), (50, 99, 100)).round(2).tolist()
    return {"replies": dict(replies), "p50": p50, "p99": p99, "most": most}


def resident_bytes(process: subprocess.Popen) -> int:
    lines = Path(f"/proc/{process.pid}/status").read_text().splitlines()
    return 1024 * int(next(line for line in lines if line.startswith("RssAnon")).split()[1])


def measure(bench: Bench, options: argparse.Namespace, index: Path) -> None:
    """One row a kind, each against a service of its own."""
    for kind in options.kinds or KINDS:
        port = free_port()
        words = [sys.executable, "-m", "rankbits", "serve", str(index), "--port", str(port)]
        process = started(words, port)
        try:
            before, memory = ask_honestly(port, options.around), resident_bytes(process)
            facts = f"{kind},{port},{options.connections},{options.seconds}"
            attacker = subprocess.Popen(
                [sys.executable, __file__, "--attack", facts], stdout=subprocess.PIPE, text=True
            )
            during = ask_honestly(port, options.seconds)
            told = json.loads(attacker.communicate(timeout=60)[0])
            grown = resident_bytes(process) - memory
            after = ask_honestly(port, options.around)
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(60)
        row: dict[str, Any] = {}
        for name, part in (("before", before), ("during", during), ("after", after)):
            row |= {f"{name}_{mark}_ms": part[mark] for mark in ("p50", "p99", "most")}
            row[f"{name}_replies"] = part["replies"]
        bench.note(
            f"{options.connections:,} connections for {options.seconds:g} s: {kind}",
            **row, **told, grown_mb=round(grown / 1e6, 1), exit=process.returncode,
        )  # fmt: skip


def measure_memory(bench: Bench, index: Path, requests: int) -> None:
    """What a service holds after so many requests of 50 clients, looked at ten times."""
    port = free_port()
    words = [sys.executable, "-m", "rankbits", "serve", str(index), "--port", str(port)]
    process = started(words, port)
    asked, held = 0, []
    try:
        while asked < requests:
            done = 0
            while done < requests // 10:
                done += len(loaded(port, 50, 2.0)["times"])
            asked += done
            held.append(round(resident_bytes(process) / 1e6, 1))
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(60)
    bench.note("memory over many requests (MB)", requests=asked, held=held)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--requests", type=int, default=0)
    parser.add_argument("--connections", type=int, default=4000)
    parser.add_argument("--seconds", type=float, default=120.0)
    parser.add_argument("--around", type=float, default=AROUND)
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--kinds", nargs="*", choices=list(KINDS))
    parser.add_argument("--save", action="store_true")
    parser.add_argument("--attack", help=argparse.SUPPRESS)
    options = parser.parse_args()
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    if options.attack:
        kind, port, connections, seconds = options.attack.rsplit(",", 3)
        print(json.dumps(asyncio.run(attack(kind, int(port), int(connections), float(seconds)))))
        return
    bench = Bench("hostile_serve", threads=1, seed=SEED)
    with tempfile.TemporaryDirectory() as folder:
        index = Path(folder) / "index"
        with rb.open_index(index, bits=BITS) as written:
            written.add(codes(options.rows, SEED))
        if options.requests:
            measure_memory(bench, index, options.requests)
        else:
            measure(bench, options, index)
    if options.save:
        bench.save()


if __name__ == "__main__":
    main()
