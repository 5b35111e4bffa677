"""A service asked in this process, and a real one in its own where sockets and signals matter."""

from __future__ import annotations

import asyncio
import http.client
import io
import json
import queue
import re
import socket
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import httpx
import pytest

from rankbits import SupervisedRotation
from rankbits.serve import Service, compare, create_app
from rankbits.serve.logs import Log
from rankbits.serve.running import listen, open_socket, run
from rankbits.serve.wire import Request, make_refusal

TOKEN = "a-token-of-tests"
PATIENCE = 300  # seconds until what does not come is a failure, on a machine however busy

SCRIPT = """
import sys
from pathlib import Path
import numpy as np
import rankbits as rb
from rankbits.serve import Items, Limits, QueryReader, Service, serve

def vectors(found):
    return rb.pack(found)

def image(file):
    from rankbits.data.images import decode
    return rb.pack(decode(file, 4, channels=1).reshape(1, 16).astype(float) - 127)

index = rb.open_index(sys.argv[1])
service = Service(
    index,
    encoder=QueryReader(
        vectors,
        image,
        lambda text: vectors(np.full((1, 16), float(len(text) - 5))),
        dims=(16,),
        bits=16,
    ),
    token=sys.argv[2],
    limits=Limits(seconds=float(sys.argv[3])),
)
gate = sys.argv[4] if len(sys.argv) > 4 else None
if gate:
    work = service.batcher._work
    closed = [gate]
    def held(jobs):
        while closed:
            open(closed.pop()).close()  # a pipe: blocks until the test opens its other end
        return work(jobs)
    service.batcher._work = held
serve(service, port=0)
"""


@contextmanager
def few_steps():
    """Comparisons whose supervised rotation hardly learns: how well it does is tested elsewhere."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compare, "SupervisedRotation", partial(SupervisedRotation, steps=5, climbs=1))
        yield


class Asked:
    """A service asked in this process, without sockets."""

    def __init__(self, service: Service) -> None:
        self.service, self.log = service, io.StringIO()
        self.app = create_app(service, log=Log(self.log))

    def __call__(self, method, path, **given):
        sent = httpx.Client(base_url="http://test").build_request(method, path, **given)
        return asyncio.run(self._answer(sent))

    async def _answer(self, sent):
        headers = {name.lower(): value for name, value in sent.headers.raw}
        request = Request(sent.method, sent.url.raw_path, headers, id=self.app.make_id())
        refusal = self.app.admit(request)
        request.body = sent.read()
        reply = make_refusal(refusal) if refusal else await self.app.respond(request)
        self.app.note(request, reply.status)
        head = reply.to_bytes(request.id, close=False, head_only=True).decode().splitlines()
        lines = [line.split(": ", 1) for line in head[1:] if line]
        return httpx.Response(reply.status, headers=lines, content=reply.body)

    def search(self, **body):
        return self("POST", "/search", json=body)


def wait_for(condition) -> None:
    """Return when a condition holds; one that never does is a failure."""
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end, "what was waited for did not come"
        threading.Event().wait(0.002)


@contextmanager
def listening(service: Service, hosts=None):
    """A service on a socket of a thread of this process: port, connections, and its log. It is
    ended in order, and closes the service."""
    log, begun = io.StringIO(), queue.Queue()
    app = create_app(service, log=Log(log), hosts=hosts)
    place = open_socket("127.0.0.1", 0)

    async def work():
        ended = asyncio.Event()
        end = partial(asyncio.get_running_loop().call_soon_threadsafe, ended.set)
        await listen(app, place, ended, lambda crowd: begun.put((crowd, end)))

    thread = threading.Thread(target=run, args=(work(),))
    with place:
        port = place.getsockname()[1]
        thread.start()
        crowd, end = begun.get(timeout=PATIENCE)
        try:
            yield port, crowd, log
        finally:
            end()
            thread.join(PATIENCE)
            assert not thread.is_alive()


class Server:
    """What a test needs to know of the process."""

    def __init__(self, process: subprocess.Popen, log: Path) -> None:
        self.process, self.log = process, log
        line = process.stdout.readline()
        found = re.match(r"http://127\.0\.0\.1:(\d+)/ serves", line)
        assert found, f"no server: {line!r} {log.read_text()[-2000:]}"
        self.port = int(found[1])
        self.url = f"http://127.0.0.1:{self.port}"

    def ask(self, method, path, body=None, headers=None, timeout=PATIENCE):
        """Status, headers and body of one request on a connection of its own."""
        line = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)
        try:
            chunked = "Transfer-Encoding" in (headers or {})
            line.request(method, path, body, headers or {}, encode_chunked=chunked)
            reply = line.getresponse()
            return reply.status, dict(reply.getheaders()), reply.read()
        finally:
            line.close()

    def raw(self, data: bytes, *, close: bool = False) -> bytes:
        """Everything that comes back for bytes sent as they are."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=PATIENCE) as line:
            line.sendall(data)
            if close:
                line.shutdown(socket.SHUT_WR)
            return read_all(line)

    def gauge(self, name: str) -> float:
        text = self.ask("GET", "/metrics")[2].decode()
        return float(re.search(rf"^{name} (\S+)$", text, re.M)[1])

    def rss(self) -> int:
        """Bytes in memory that are its own, not those of files it has mapped."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(re.search(r"RssAnon:\s+(\d+)", status)[1]) * 1024


def read_all(line: socket.socket) -> bytes:
    parts = []
    try:
        while part := line.recv(65536):
            parts.append(part)
    except ConnectionResetError:
        pass
    return b"".join(parts)


def sentence(body: bytes) -> str:
    """The one sentence of a refusal."""
    told = json.loads(body)
    assert list(told) == ["error"]
    text = told["error"]
    assert text.endswith(".") and "\n" not in text and "Traceback" not in text, text
    return text


@contextmanager
def running(folder: Path, index: Path, seconds: float = 20.0, gate: Path | None = None):
    """A server on ``index``; ended in order if it still runs, for then its coverage is told."""
    log = folder / "log.jsonl"
    words = [sys.executable, "-c", SCRIPT, str(index), TOKEN, str(seconds)]
    with open(log, "a") as file:
        process = subprocess.Popen(
            [*words, *([str(gate)] if gate else [])], stdout=subprocess.PIPE, stderr=file, text=True
        )
    try:
        yield Server(process, log)
    finally:
        if process.poll() is None:
            process.terminate()
        try:
            process.wait(PATIENCE)
        finally:
            process.kill()
            process.stdout.close()
