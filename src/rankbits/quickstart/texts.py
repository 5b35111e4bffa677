"""Two minutes with texts: 220 short notes turned into bits, asked, judged and put on a page.

The notes and the questions about them are our own, so that nothing has to be downloaded.
"""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Callable
from pathlib import Path

from rankbits._files import write_whole
from rankbits.data.tables import read_table
from rankbits.quickstart.digits import Run, run_command

DATA = Path(__file__).parent.parent / "data"
QUESTION = "how to stop a thief from taking my bike"
NEXT = """
With texts of your own, a folder of .txt or a table with a column text:
  rankbits fit texts.jsonl --bits 256 -o notes
  rankbits index notes texts.jsonl -o notes.index
  rankbits search notes.index "is vitamin D good for bones?"
  rankbits serve notes.index
rankbits quickstart --text --serve asks these notes on a page."""


def quickstart_texts(
    folder: str | Path, run: Run, *, bits: int = 128, say: Callable[[str], object] = print
) -> None:
    """Make bits of the notes, ask them a question and judge them by 44 questions.

    Everything is done by commands of rankbits, which ``run`` (``rankbits.cli.main``) runs and
    ``say`` shows. ``folder`` gets the notes, the encoder, the index and the report.
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    say(f"$ cd {shlex.quote(str(folder))}")
    before = os.getcwd()
    try:
        os.chdir(folder)
        _walk(run, bits, say)
    finally:
        os.chdir(before)


def _walk(run: Run, bits: int, say: Callable[[str], object]) -> None:
    notes = _write_lines("notes.tsv", "texts.jsonl")
    questions = _write_lines("questions.tsv", "questions.jsonl")
    say(
        f"\n{notes} short notes on eleven subjects become {bits} bits each, and {questions} "
        "questions ask for them. A line that begins with $ is a command to copy.\n"
    )

    def do(*words: object, shown: int = 1) -> str:
        return run_command(run, [str(word) for word in words], say, shown)

    do("fit", "texts.jsonl", "--bits", bits, "-o", "notes")
    do("index", "notes", "texts.jsonl", "-o", "notes.index")
    say("\nA question in words that the notes do not use:")
    do("search", "notes.index", QUESTION, "-k", 5, shown=6)
    say("\nJudged by 44 questions: a note on the subject of a question is relevant to it.")
    for ask in ("bits", "floats"):
        do("evaluate", "notes.index", "questions.jsonl", "-k", 10, "--ask", ask, shown=5)
    report = do(
        "evaluate", "notes.index", "questions.jsonl", "-k", 10, "--ask", "bits", "--json",
        "--html", "report.html", shown=0,
    )  # fmt: skip
    text = report.encode()
    write_whole("report.json", lambda file: file.write(text))
    say(f"\nLook at it: {Path('report.html').resolve().as_uri()}\n{NEXT}")


def _write_lines(name: str, out: str) -> int:
    """Write a table of ours as the JSON lines that a user would have -> how many."""
    columns = read_table(DATA / name)
    rows = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    lines = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows).encode()
    write_whole(out, lambda file: file.write(lines))
    return len(rows)
