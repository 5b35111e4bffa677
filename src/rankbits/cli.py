"""The command line: one command for each arrow. It parses and prints; the work is done elsewhere.

A command is a frozen dataclass: its fields are its flags, its docstring its help, ``run`` its
work. Values come from flags, then from a TOML file given by ``--config``, then from the defaults.
A refusal is one line on stderr and exit status 1.
"""

from __future__ import annotations

import argparse
import dataclasses
import sys
import types
import typing
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from rankbits import __version__, _check
from rankbits._check import Refusal, refuse

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


def _option(default: Any, text: str) -> Any:
    return field(default=default, metadata={"help": text})


@dataclass(frozen=True)
class Evaluate:
    """Judge codes with labels (two files), or a TREC run by its qrels, ties averaged exactly."""

    name: ClassVar[str] = "evaluate"
    places: ClassVar[tuple[str, ...]] = ("queries", "database")

    queries: str | None = _option(
        None, "codes of the queries, saved with labels (.npz, .safetensors)"
    )
    database: str | None = _option(None, "codes of the database, saved with labels")
    run: str | None = _option(None, "a TREC run file: query Q0 document rank score tag")
    qrels: str | None = _option(None, "its judgements: query 0 document grade")
    k: tuple[int, ...] = _option((10, 100, 1000), "cutoffs, as in 10,100,1000")
    radius: int = _option(2, "Hamming radius of the lookup figures")
    relevance: str = _option("any", "any: shares a label; count: number of shared labels")
    gain: str = _option("exp2", "gain of NDCG: exp2 (2^grade - 1) or linear")
    tie_break: bool = _option(
        False, "break ties by the embeddings saved with the codes (H2Q's protocol)"
    )
    exclude_self: bool = _option(
        False, "the queries are the database; leave each out of its own ranking"
    )
    negative: str = _option("refuse", "negative grades in qrels: refuse, or zero for not relevant")
    missing: str = _option("zero", "judged queries the run lacks: zero, or skip as trec_eval does")
    json: bool = _option(False, "print JSON")
    markdown: bool = _option(False, "print a Markdown table")
    html: str | None = _option(None, "also write a self-contained page here")

    def work(self) -> None:
        report = self._of_run() if self.run or self.qrels else self._of_codes()
        if self.html:
            report.to_html(self.html)
        print(report.to_json() if self.json else report.to_markdown() if self.markdown else report)

    def _of_run(self) -> Any:
        from rankbits.data.trec import read_judged
        from rankbits.evaluate import evaluate_run

        if not (self.run and self.qrels) or self.queries:
            refuse("A run is judged by two files: --run RUN --qrels QRELS, and no codes.")
        judged = read_judged(self.run, self.qrels, negative=self.negative, missing=self.missing)
        return evaluate_run(judged, k=self.k, gain=self.gain)

    def _of_codes(self) -> Any:
        from rankbits.evaluate import evaluate
        from rankbits.types import Codes

        if not self.queries or not (self.database or self.exclude_self):
            refuse("Give two files of codes, QUERIES DATABASE, or --run RUN --qrels QRELS.")
        queries, of_queries = Codes.load_columns(self.queries)
        database, of_database = (
            Codes.load_columns(self.database) if self.database else (queries, of_queries)
        )
        paths = (self.queries, self.database or self.queries)
        for path, columns in zip(paths, (of_queries, of_database), strict=True):
            for wanted in ("labels", "embeddings")[: 1 + self.tie_break]:
                if wanted not in columns:
                    refuse(
                        f"{path} holds no {wanted}: save them with codes.save(path, {wanted}=...)."
                    )
        return evaluate(
            queries,
            database,
            of_queries["labels"],
            of_database["labels"],
            k=self.k,
            radius=self.radius,
            relevance=self.relevance,
            gain=self.gain,
            exclude_self=self.exclude_self,
            tie_break=(of_queries["embeddings"], of_database["embeddings"])
            if self.tie_break
            else None,
        )


@dataclass(frozen=True)
class Quickstart:
    """Hash the embedded digits and judge the codes: a table, a report, a page; no file needed."""

    name: ClassVar[str] = "quickstart"
    places: ClassVar[tuple[str, ...]] = ()

    folder: str = _option("rankbits-quickstart", "where the codes and the page are written")
    bits: int = _option(16, "bits of the code in the report, 1 to 61")
    seed: int = _option(0, "seed of the split")

    def work(self) -> None:
        from rankbits.quickstart import quickstart

        quickstart(self.folder, bits=self.bits, seed=self.seed)


COMMANDS: tuple[Any, ...] = (Quickstart, Evaluate)


class _Parser(argparse.ArgumentParser):
    """argparse that refuses in one sentence instead of printing usage and exiting with 2."""

    def error(self, message: str) -> typing.NoReturn:
        refuse(f"{message[:1].upper()}{message[1:]}.")


def _spelled(value: Any) -> str:
    return ",".join(map(str, value)) if isinstance(value, tuple) else str(value)


def _kind(annotation: Any) -> Any:
    """The plain type behind ``X | None``."""
    if isinstance(annotation, types.UnionType):
        return next(a for a in typing.get_args(annotation) if a is not type(None))
    return annotation


def _parse(name: str, kind: Any, text: Any) -> Any:
    """A flag's text, or a TOML value, as the field's type."""
    try:
        if kind is bool:
            if isinstance(text, bool):
                return text
            raise ValueError
        if typing.get_origin(kind) is tuple:
            parts = text.split(",") if isinstance(text, str) else text
            return tuple(
                _parse(name, int, p) for p in (parts if isinstance(parts, list) else [parts])
            )
        if kind is int and isinstance(text, (bool, float)):
            raise ValueError
        return kind(text)
    except Refusal:
        raise
    except (ValueError, TypeError):
        wanted = {int: "a whole number", float: "a number", bool: "true or false"}.get(
            kind, "whole numbers"
        )
        refuse(f"{name} must be {wanted}; got {text!r}.")


def _parser() -> _Parser:
    parser = _Parser(
        prog="rankbits",
        description="Learn to rank, in bits: judge, search and make binary codes.",
        epilog="rankbits COMMAND --help explains a command.",
    )
    parser.add_argument("--version", action="version", version=f"rankbits {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", parser_class=_Parser)
    for command in COMMANDS:
        text = command.__doc__
        sub = commands.add_parser(command.name, help=text, description=text, allow_abbrev=False)
        for f in dataclasses.fields(command):
            flag = f"--{f.name.replace('_', '-')}"
            shown = f.metadata["help"]
            if f.default not in (None, False):
                shown += f" (default {_spelled(f.default)})"
            if f.name in command.places:
                sub.add_argument(f.name, nargs="?", default=argparse.SUPPRESS, help=shown)
            elif f.type == "bool":
                sub.add_argument(flag, action="store_true", default=argparse.SUPPRESS, help=shown)
            else:
                sub.add_argument(flag, default=argparse.SUPPRESS, metavar="X", help=shown)
        sub.add_argument(
            "--config", default=None, metavar="TOML", help="read flags from a TOML file"
        )
    return parser


def _values(command: Any, given: dict[str, Any], config: str | None) -> dict[str, Any]:
    kinds = {n: _kind(t) for n, t in typing.get_type_hints(command).items()}
    known = {f.name for f in dataclasses.fields(command)}
    merged: dict[str, Any] = {}
    if config is not None:
        if not Path(config).is_file():
            refuse(f"{config} does not exist or is not a file.")
        try:
            table = tomllib.loads(Path(config).read_text("utf-8"))
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            refuse(f"{config} is not TOML: {error}.")
        for key, value in table.items():
            name = key.replace("-", "_")
            if name not in known:
                refuse(f"{config} has an unknown key '{key}'{_check.nearest(name, known)}.")
            merged[name] = value
    merged |= given
    return {name: _parse(name.replace("_", "-"), kinds[name], v) for name, v in merged.items()}


def _refuse_unknown(extra: Sequence[str], command: Any) -> None:
    flags = [f"--{f.name.replace('_', '-')}" for f in dataclasses.fields(command)]
    for word in extra:
        if word.startswith("-"):
            flag = word.split("=")[0]
            refuse(f"{command.name} has no flag {flag}{_check.nearest(flag, flags)}.")
    if extra:
        refuse(f"{command.name} does not take '{extra[0]}'.")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; 0, or 1 after a refusal."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    known = {command.name: command for command in COMMANDS}
    try:
        if words and not words[0].startswith("-") and words[0] not in known:
            refuse(f"There is no command '{words[0]}'{_check.nearest(words[0], known)}.")
        parser = _parser()
        space, extra = parser.parse_known_args(words)
        given = vars(space)
        name = given.pop("command", None)
        if name is None:
            _refuse_unknown(extra, Quickstart) if extra else parser.print_help()
            return 0
        _refuse_unknown(extra, known[name])
        config = given.pop("config", None)
        known[name](**_values(known[name], given, config)).work()
    except Refusal as sentence:
        print(f"rankbits: {sentence}", file=sys.stderr)
        return 1
    except OSError as error:
        where = f" {error.filename}" if error.filename else ""
        print(f"rankbits: {error.strerror or error}{where}.", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("rankbits: stopped.", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
