"""Hosts on one machine: each a network namespace with an address and a disk of its own."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

BRIDGE = "rankbits"
HEAD = "10.213.0.1"


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True, timeout=60)


def allowed() -> bool:
    """Whether namespaces may be made here: by root, where ``ip`` is installed."""
    if os.geteuid() or not shutil.which("ip"):
        return False
    tried = subprocess.run(["unshare", "--net", "--mount", "true"], capture_output=True)
    return tried.returncode == 0


@contextmanager
def hosts(number: int) -> Iterator[list[str]]:
    """The addresses of so many hosts, which reach each other and this machine, as ``HEAD``."""
    names = [f"{BRIDGE}{i}" for i in range(2, number + 2)]
    try:
        _ip("link", "add", BRIDGE, "type", "bridge")
        _ip("addr", "add", f"{HEAD}/24", "dev", BRIDGE)
        _ip("link", "set", BRIDGE, "up")
        addresses = []
        for i, name in enumerate(names, 2):
            _ip("netns", "add", name)
            _ip("link", "add", name, "type", "veth", "peer", "name", "eth0", "netns", name)
            _ip("link", "set", name, "master", BRIDGE, "up")
            addresses.append(f"10.213.0.{i}")
            _ip("-n", name, "addr", "add", f"{addresses[-1]}/24", "dev", "eth0")
            _ip("-n", name, "link", "set", "eth0", "up")
            _ip("-n", name, "link", "set", "lo", "up")
        yield addresses
    finally:
        for name in names:
            subprocess.run(["ip", "netns", "del", name], capture_output=True)
        subprocess.run(["ip", "link", "del", BRIDGE], capture_output=True)


def on_host(address: str, disk: Path, *command: str) -> list[str]:
    """The command line that runs ``command`` on a host, which alone sees what is on ``disk``: a
    folder that is empty when the host starts."""
    name = BRIDGE + address.rpartition(".")[2]
    mount = 'mount -t tmpfs none "$0" && exec "$@"'
    return ["ip", "netns", "exec", name, "sh", "-c", mount, str(disk), *command]


def wait_for_port(host: str, port: int, seconds: float) -> None:
    """Return once something listens there; an OSError tells that nothing did in time."""
    until = time.monotonic() + seconds
    while True:
        try:
            socket.create_connection((host, port), 1).close()
            return
        except OSError:
            if time.monotonic() > until:
                raise
            time.sleep(0.2)
