"""Two minutes with texts: turn 220 short notes into bits, search them and judge them.

The notes and the questions come with rankbits, so nothing has to be downloaded.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from rankbits._files import write_whole
from rankbits.data.tables import read_table
from rankbits.quickstart.digits import Run, enter_folder, run_command

DATA = Path(__file__).parent.parent / "data"
QUESTION = "how to stop a thief from taking my bike"
NEXT = """
With texts of your own, a folder of .txt or a table with a column text:
  rankbits fit texts.jsonl --bits 256 -o notes
  rankbits index notes texts.jsonl -o notes.index
  rankbits search notes.index "is vitamin D good for bones?"
  rankbits serve notes.index
rankbits quickstart --text --serve searches these notes on a page."""


def quickstart_texts(
    folder: str | Path, run: Run, *, bits: int = 128, say: Callable[[str], object] = print
) -> None:
    """Turn the notes into bits, search them with a question and judge them by 44 questions.

    ``run`` (``rankbits.cli.main``) runs every command, and ``say`` prints it. The notes, the
    encoder, the index and the report are written to ``folder``.
    """
    with enter_folder(folder, say):
        _run_commands(run, bits, say)


def _run_commands(run: Run, bits: int, say: Callable[[str], object]) -> None:
    notes = _write_lines("notes.tsv", "texts.jsonl")
    questions = _write_lines("questions.tsv", "questions.jsonl")
    say(
        f"\n{notes} short notes on eleven subjects become {bits} bits each, and {questions} "
        "questions search them. A line that begins with $ is a command to copy.\n"
    )

    def do(*words: object, lines: int = 1) -> str:
        return run_command(run, [str(word) for word in words], say, lines)

    do("fit", "texts.jsonl", "--bits", bits, "-o", "notes")
    do("index", "notes", "texts.jsonl", "-o", "notes.index")
    say("\nA question in words that the notes do not use:")
    do("search", "notes.index", QUESTION, "-k", 5, lines=6)
    say("\nJudged by 44 questions: a note on the subject of a question is relevant to it.")
    for ask in ("bits", "floats"):
        do("evaluate", "notes.index", "questions.jsonl", "-k", 10, "--ask", ask, lines=5)
    report = do(
        "evaluate", "notes.index", "questions.jsonl", "-k", 10, "--ask", "bits", "--json",
        "--html", "report.html", lines=0,
    )  # fmt: skip
    text = report.encode()
    write_whole("report.json", lambda file: file.write(text))
    say(f"\nOpen the page: {Path('report.html').resolve().as_uri()}\n{NEXT}")


def _write_lines(name: str, out: str) -> int:
    """Write a table of the package as JSON lines -> the number of lines."""
    columns = read_table(DATA / name)
    rows = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    lines = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows).encode()
    write_whole(out, lambda file: file.write(lines))
    return len(rows)
