"""The command line: it reads flags, runs a command of ``commands`` and prints refusals.

Values come from flags, then from a TOML file given by ``--config``, then from the defaults.
A refusal is one line on stderr and exit status 1; output that nobody reads ends a command quietly.
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


def _spelled(value: Any) -> str:
    return ",".join(map(str, value)) if isinstance(value, tuple) else str(value)


def _kind(annotation: Any) -> Any:
    """The plain type behind ``X | None``."""
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
        others = "name=value pairs" if typing.get_origin(kind) is dict else "whole numbers"
        wanted = {int: "a whole number", float: "a number", bool: "true or false"}.get(kind, others)
        refuse(f"{name} must be {wanted}; got {text!r}.")


def _parse_pairs(text: str) -> dict[str, Any]:
    """Parse ``name=value,name=value``, values as TOML spells them, or plain words."""
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
        groups: dict[str, Any] = {"": sub}
        for f in dataclasses.fields(command):
            title = _find_title(command, f.name)
            group = groups[title] if title in groups else sub.add_argument_group(title)
            groups[title] = group
            flag = f"--{f.name.replace('_', '-')}"
            shown = f.metadata["help"]
            if f.default not in (None, False, True, ()):
                shown += f" (default {_spelled(f.default)})"
            if f.name in command.places:
                many = "*" if str(f.type).startswith("tuple") else "?"
                group.add_argument(f.name, nargs=many, default=argparse.SUPPRESS, help=shown)
            elif f.type == "bool":
                switch = argparse.BooleanOptionalAction if f.default else "store_true"
                group.add_argument(flag, action=switch, default=argparse.SUPPRESS, help=shown)
            else:
                short = [f"-{f.metadata['short']}"] if f.metadata["short"] else []
                group.add_argument(*short, flag, default=argparse.SUPPRESS, metavar="X", help=shown)
        said: dict[str, Any] = {"default": None, "metavar": "TOML", "help": "flags in a TOML file"}
        if getattr(command, "config_place", False):
            sub.add_argument("config", nargs="?", **said)
        else:
            sub.add_argument("--config", **said)
    return parser


def _find_title(command: Any, name: str) -> str:
    """The title of the group of settings that a flag belongs to; "" where it is the command's."""
    owner = next(c for c in command.__mro__ if name in vars(c).get("__annotations__", {}))
    return str(vars(owner).get("title", ""))


def _values(command: Any, given: dict[str, Any], config: str | None) -> dict[str, Any]:
    kinds = {n: _kind(t) for n, t in typing.get_type_hints(command).items()}
    known = {f.name for f in dataclasses.fields(command)}
    merged: dict[str, Any] = {}
    if config is not None:
        if not Path(config).is_file():
            refuse(f"{config} does not exist or is not a file.")
        try:
            table = tomllib.loads(Path(config).read_text("utf-8"))
        except (ValueError, RecursionError) as error:  # of TOML, UTF-8, or brackets without end
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


BROKEN_PIPE = 141  # what a shell reports of a program that SIGPIPE has ended


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; 0, or 1 after a refusal, or 141 where nobody reads what it prints."""
    try:
        try:
            return _run(arguments)
        finally:
            _flush()
    except BrokenPipeError as error:
        if _output_is_read():
            return _say(f"{error.strerror or error}.")  # the pipe was another one: of a database
        _discard_output()
        return BROKEN_PIPE


def _flush() -> None:
    if sys.stdout is not None:
        sys.stdout.flush()


def _output_is_read() -> bool:
    """Whether somebody still reads what is printed."""
    try:
        _flush()
        # unbuffered output has nothing left to flush: ask the system
        pipe = select.poll()
        pipe.register(sys.stdout.fileno(), 0)
        return not any(event & select.POLLERR for _, event in pipe.poll(0))
    except BrokenPipeError:
        return False
    except (OSError, ValueError, AttributeError):  # no file behind it, or no poll on this system
        return True


def _discard_output() -> None:
    """Let the interpreter flush into nothing when it ends; otherwise it reports the broken pipe."""
    with contextlib.suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)


def _say(sentence: str, status: int = 1) -> int:
    print(f"rankbits: {sentence}", file=sys.stderr)
    return status


def _run(arguments: Sequence[str] | None) -> int:
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
            _refuse_unknown(extra, COMMANDS[0]) if extra else parser.print_help()
            return 0
        _refuse_unknown(extra, known[name])
        config = given.pop("config", None)
        if getattr(known[name], "config_place", False) and config and not config.endswith(".toml"):
            given.setdefault("data", config)  # rankbits train FOLDER
            config = None
        command = known[name](**_values(known[name], given, config))
        # quickstart runs the commands it shows, and a room may not import the one below it
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
