"""Show how far long work has come: a bar on a terminal, a line now and then elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

from tqdm import tqdm

BAR_AFTER = 2.0  # seconds: shorter work shows nothing
LINE_AFTER = 20.0  # seconds between two lines

Item = TypeVar("Item")


def print_line(line: str) -> None:
    """Print a line to standard error, at once."""
    print(line, file=sys.stderr, flush=True)


class Meter:
    """Shows how many of ``total`` units are done; a context manager.

    ``silent_since`` is when the user last saw a line, by ``time.monotonic``. Many short pieces of
    work can share it, so that lines appear though no piece takes long.
    """

    def __init__(
        self,
        what: str,
        total: int,
        unit: str,
        *,
        done: int = 0,
        shown: bool = True,
        say: Callable[[str], None] = print_line,
        silent_since: float | None = None,
    ) -> None:
        self.what, self.total, self.unit, self.done, self.say = what, total, unit, done, say
        self.begun, self.before = time.monotonic(), done
        self.silent_since = self.begun if silent_since is None else silent_since
        self.bar = tqdm(
            total=total, desc=what, unit=f" {unit}", initial=done,
            delay=max(0.0, self.silent_since + BAR_AFTER - self.begun),
            disable=None if shown else True,  # None: off where there is no terminal
        )  # fmt: skip
        self.lines = shown and bool(self.bar.disable)

    def update(self, count: int, note: str = "") -> None:
        """Add ``count`` units to those done; ``note`` is shown beside the count."""
        self.done += count
        if not self.bar.disable:
            self.bar.set_postfix_str(note, refresh=False)
        self.bar.update(count)
        now = time.monotonic()
        if self.lines and self.done < self.total and now - self.silent_since >= LINE_AFTER:
            self.silent_since = now
            left = (now - self.begun) * (self.total - self.done) / (self.done - self.before)
            line = f"{self.what}: {self.done:,} of {self.total:,} {self.unit}"
            self.say(", ".join(filter(None, [line, note, f"{tqdm.format_interval(left)} left"])))

    def __enter__(self) -> Meter:
        return self

    def __exit__(self, *error: object) -> None:
        self.bar.close()


def show_progress(items: Iterable[Item], what: str, total: int, unit: str) -> Iterator[Item]:
    """Yield the items, and show how many of ``total`` have come."""
    with Meter(what, total, unit) as meter:
        for item in items:
            yield item
            meter.update(1)
