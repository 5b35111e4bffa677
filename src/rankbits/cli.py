"""The command line: it reads flags, runs a command of ``commands`` and prints refusals.

Values come from flags, then from a TOML file given by ``--config``, then from the defaults.
A refusal is one line on stderr and exit status 1. Where the reader of the output has gone, as in
``rankbits search ... | head -1``, the command ends quietly.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import os
import select
import sys
import types
import typing
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rankbits import __version__, _check
from rankbits._check import Refusal, refuse
from rankbits.commands import COMMANDS

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


class _Parser(argparse.ArgumentParser):
    """argparse that refuses in one sentence instead of printing usage and exiting with 2."""

    def error(self, message: str) -> typing.NoReturn:
        refuse(f"{message[:1].upper()}{message[1:]}.")


def _spell(value: Any) -> str:
    return ",".join(map(str, value)) if isinstance(value, tuple) else str(value)


def _strip_none(annotation: Any) -> Any:
    """Return the plain type behind ``X | None``."""
    if isinstance(annotation, types.UnionType):
        return next(a for a in typing.get_args(annotation) if a is not type(None))
    return annotation


def _parse(name: str, kind: Any, text: Any) -> Any:
    """Turn a flag's text, or a TOML value, into the type of its field."""
    try:
        if kind is bool:
            if isinstance(text, bool):
                return text
            raise ValueError
        if typing.get_origin(kind) is dict:
            return text if isinstance(text, dict) else _parse_pairs(text)
        if typing.get_origin(kind) is tuple:
            part = typing.get_args(kind)[0]
            texts = text.split(",") if isinstance(text, str) and part is not str else text
            return tuple(
                _parse(name, part, t) for t in (texts if isinstance(texts, list) else [texts])
            )
        if kind is int and isinstance(text, (bool, float)):
            raise ValueError
        return kind(text)
    except Refusal:
        raise
    except (ValueError, TypeError):
        several = "name=value pairs" if typing.get_origin(kind) is dict else "whole numbers"
        one = {int: "a whole number", float: "a number", bool: "true or false"}
        refuse(f"{name} must be {one.get(kind, several)}; got {text!r}.")


def _parse_pairs(text: str) -> dict[str, Any]:
    """Parse ``name=value,name=value``, where a value is TOML or a plain word."""
    pairs = {}
    for pair in text.split(","):
        name, equals, value = (part.strip() for part in pair.partition("="))
        if not name or not equals or not value:
            raise ValueError
        try:
            pairs[name] = tomllib.loads(f"x = {value}")["x"]
        except (ValueError, RecursionError):
            pairs[name] = value
    return pairs


def _make_parser() -> _Parser:
    parser = _Parser(
        prog="rankbits",
        description="Learn to rank, in bits: make, search and judge binary codes.",
        epilog="rankbits COMMAND --help explains a command.",
    )
    parser.add_argument("--version", action="version", version=f"rankbits {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", parser_class=_Parser)
    for command in COMMANDS:
        text = command.__doc__
        sub = commands.add_parser(command.name, help=text, description=text, allow_abbrev=False)
        groups: dict[str, Any] = {"": sub}
        for f in dataclasses.fields(command):
            title = _find_title(command, f.name)
            group = groups[title] if title in groups else sub.add_argument_group(title)
            groups[title] = group
            flag = f"--{f.name.replace('_', '-')}"
            about = f.metadata["help"]
            if f.default not in (None, False, True, ()):
                about += f" (default {_spell(f.default)})"
            if f.name in command.places:
                many = "*" if str(f.type).startswith("tuple") else "?"
                group.add_argument(f.name, nargs=many, default=argparse.SUPPRESS, help=about)
            elif f.type == "bool":
                switch = argparse.BooleanOptionalAction if f.default else "store_true"
                group.add_argument(flag, action=switch, default=argparse.SUPPRESS, help=about)
            else:
                short = [f"-{f.metadata['short']}"] if f.metadata["short"] else []
                group.add_argument(*short, flag, default=argparse.SUPPRESS, metavar="X", help=about)
        place: dict[str, Any] = {"nargs": "?"} if getattr(command, "config_place", False) else {}
        word = "config" if place else "--config"
        sub.add_argument(word, metavar="TOML", help="a TOML file that sets flags", **place)
    return parser


def _find_title(command: Any, name: str) -> str:
    """Find the title of the group of settings a flag belongs to; "" for the command's own flags."""
    owner = next(c for c in command.__mro__ if name in vars(c).get("__annotations__", {}))
    return str(vars(owner).get("title", ""))


def _read_values(command: Any, flags: dict[str, Any], config: str | None) -> dict[str, Any]:
    """Read the values of a command's fields from its TOML file and its flags, which come first."""
    kinds = {n: _strip_none(t) for n, t in typing.get_type_hints(command).items()}
    fields = {f.name for f in dataclasses.fields(command)}
    values: dict[str, Any] = {}
    if config is not None:
        if not Path(config).is_file():
            refuse(f"{config} does not exist or is not a file.")
        try:
            table = tomllib.loads(Path(config).read_text("utf-8"))
        except (ValueError, RecursionError) as error:  # of TOML, UTF-8, or brackets without end
            refuse(f"{config} is not TOML: {error}.")
        for key, value in table.items():
            name = key.replace("-", "_")
            if name not in fields:
                refuse(f"{config} has an unknown key '{key}'{_check.suggest(name, fields)}.")
            values[name] = value
    values |= flags
    return {name: _parse(name.replace("_", "-"), kinds[name], v) for name, v in values.items()}


def _refuse_unknown(extra: Sequence[str], command: Any) -> None:
    flags = [f"--{f.name.replace('_', '-')}" for f in dataclasses.fields(command)]
    for word in extra:
        if word.startswith("-"):
            flag = word.split("=")[0]
            refuse(f"{command.name} has no flag {flag}{_check.suggest(flag, flags)}.")
    if extra:
        refuse(f"{command.name} does not take '{extra[0]}'.")


BROKEN_PIPE = 141  # what a shell reports when SIGPIPE ends a program


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command -> its exit status: 0, 1 after a refusal, 130 after Ctrl-C, 141 where the
    reader of its output has gone."""
    try:
        try:
            return _run(arguments)
        finally:
            _flush()
    except BrokenPipeError as error:
        if _output_is_read():
            return _say(f"{error.strerror or error}.")  # another pipe broke, such as a database's
        _discard_output()
        return BROKEN_PIPE


def _flush() -> None:
    if sys.stdout is not None:
        sys.stdout.flush()


def _output_is_read() -> bool:
    """Say whether the reader of the output is still there."""
    try:
        _flush()
        # unbuffered output has nothing to flush: ask the system
        pipe = select.poll()
        pipe.register(sys.stdout.fileno(), 0)
        return not any(event & select.POLLERR for _, event in pipe.poll(0))
    except BrokenPipeError:
        return False
    except (OSError, ValueError, AttributeError):  # no file, or no poll on this system
        return True


def _discard_output() -> None:
    """Send further output to nowhere, or the interpreter reports the broken pipe when it ends."""
    with contextlib.suppress(OSError, ValueError):
        devnull = os.open(os.devnull, os.O_WRONLY)
        os.dup2(devnull, sys.stdout.fileno())
        os.close(devnull)


def _say(sentence: str, status: int = 1) -> int:
    print(f"rankbits: {sentence}", file=sys.stderr)
    return status


def _run(arguments: Sequence[str] | None) -> int:
    words = list(sys.argv[1:] if arguments is None else arguments)
    by_name = {command.name: command for command in COMMANDS}
    try:
        if words and not words[0].startswith("-") and words[0] not in by_name:
            refuse(f"There is no command '{words[0]}'{_check.suggest(words[0], by_name)}.")
        parser = _make_parser()
        space, extra = parser.parse_known_args(words)
        flags = vars(space)
        name = flags.pop("command", None)
        if name is None:
            _refuse_unknown(extra, COMMANDS[0]) if extra else parser.print_help()
            return 0
        kind = by_name[name]
        _refuse_unknown(extra, kind)
        config = flags.pop("config", None)
        if getattr(kind, "config_place", False) and config and not config.endswith(".toml"):
            flags.setdefault("data", config)  # rankbits train FOLDER
            config = None
        command = kind(**_read_values(kind, flags, config))
        # quickstart runs other commands, and its room may not import this file, which is below it
        command.work(main) if getattr(command, "runs_commands", False) else command.work()
    except Refusal as sentence:
        return _say(str(sentence))
    except BrokenPipeError:
        raise
    except OSError as error:
        where = f" {error.filename}" if error.filename else ""
        return _say(f"{error.strerror or error}{where}.")
    except KeyboardInterrupt:
        return _say("stopped.", 130)
    return 0
