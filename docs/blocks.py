"""Run the code of a page as a reader would, block after block: ``python docs/blocks.py PAGE``.

```python``` blocks of a page share one namespace, in a folder of their own; of ```sh``` blocks the
``rankbits`` lines are run; a ```toml``` block whose first line is ``# name`` is written to that
file. A ```text``` block right after one of the first two is what it prints, to the last digit on
every machine: ``...`` stands for anything, so that ``0.7...`` are the digits that machines agree
on. ``--write`` puts what was printed in its place.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import shlex
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.M | re.S)


@dataclass(frozen=True)
class Block:
    """One fenced block, what is said to be printed by it (None: nothing is said), and where."""

    language: str
    code: str
    printed: str | None
    place: tuple[int, int]
    line: int


def blocks(text: str) -> list[Block]:
    """The blocks of a page in order, each with the ``text`` block that follows it directly."""
    found = []
    fences = list(FENCE.finditer(text))
    for i, fence in enumerate(fences):
        after = fences[i + 1] if i + 1 < len(fences) else None
        line = text.count("\n", 0, fence.start()) + 1
        printed, place = None, (0, 0)
        if after and after[1] == "text" and not text[fence.end() : after.start()].strip():
            printed, place = after[2], after.span(2)
        found.append(Block(fence[1], fence[2], printed, place, line))
    return found


def run(text: str, space: dict[str, Any] | None = None) -> Iterator[tuple[Block, str]]:
    """Run the blocks of a page in the current folder; yields each with what it printed.

    ``space``: what a page takes for granted, by name; its fences without a language, where only
    ``rankbits`` is run, are then run too.
    """
    names: dict[str, Any] = {"__name__": "__main__", **(space or {})}
    for block in blocks(text):
        out = io.StringIO()
        if block.language == "python":
            with contextlib.redirect_stdout(out):
                exec(compile(block.code, f"line {block.line}", "exec"), names)
        elif block.language == "sh" or (space is not None and not block.language):
            with contextlib.redirect_stdout(out):
                _shell(block)
        elif block.language == "toml" and block.code.startswith("# "):
            first, _, rest = block.code.partition("\n")
            Path(first[2:]).write_text(rest)
        else:
            continue
        yield block, out.getvalue()


def _shell(block: Block) -> None:
    from rankbits.cli import main

    lines = block.code.replace("\\\n", " ").splitlines()
    for words in filter(None, (shlex.split(line, comments=True) for line in lines)):
        if words[0] != "rankbits":
            if not block.language:
                continue
            raise ValueError(f"line {block.line}: only rankbits is run, not {words[0]}")
        # a refusal says its sentence on stderr, where the reader of a failed test finds it
        if main(words[1:]):
            raise ValueError(f"line {block.line}: {shlex.join(words)} was refused")


def matches(said: str, printed: str) -> bool:
    """Whether a page says what was printed: all but the white space, ``...`` for anything."""
    parts = " ".join(said.split()).split("...")
    pattern = ".*".join(re.escape(part.strip()) for part in parts)
    return re.fullmatch(pattern, " ".join(printed.split()), re.S) is not None


def written(text: str, pairs: list[tuple[Block, str]]) -> str:
    """The page with what was printed in place of what it says, where the two differ."""
    for block, printed in reversed(pairs):
        if block.printed is not None and not matches(block.printed, printed):
            begin, end = block.place
            kept = "\n".join(line.rstrip() for line in printed.rstrip().splitlines())
            text = f"{text[:begin]}{kept}\n{text[end:]}"
    return text


def main() -> None:
    import torch

    torch.set_num_threads(1)  # what is printed must not depend on the number of cores
    write = "--write" in sys.argv
    for page in [Path(word).resolve() for word in sys.argv[1:] if not word.startswith("-")]:
        text = page.read_text()
        with tempfile.TemporaryDirectory() as folder:
            os.chdir(folder)
            pairs = list(run(text))
            os.chdir(page.parent)
        wrong = [b for b, o in pairs if b.printed is not None and not matches(b.printed, o)]
        print(f"{page.name}: {len(pairs)} blocks, {len(wrong)} print something else")
        for block, printed in pairs:
            if block in wrong and not write:
                print(f"line {block.line} prints:\n{printed}")
        if write:
            page.write_text(written(text, pairs))


if __name__ == "__main__":
    main()
