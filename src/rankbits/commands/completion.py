"""The command that makes a shell complete the others.

It prints a script of plain words. argcomplete would import rankbits, and with it torch, at each
press of the key.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any, ClassVar

from rankbits import _check
from rankbits._option import option

SHELLS = ("bash", "zsh", "fish")
INSTALL = {
    "bash": "# rankbits completion bash > ~/.local/share/bash-completion/completions/rankbits",
    "zsh": "#compdef rankbits\n# rankbits completion zsh > a folder of $fpath, as _rankbits",
    "fish": "# rankbits completion fish > ~/.config/fish/completions/rankbits.fish",
}


def list_flags(command: Any) -> list[str]:
    """List the flags of a command as they are typed."""
    fields = [f for f in dataclasses.fields(command) if f.name not in command.places]
    flags = [f"--{f.name.replace('_', '-')}" for f in fields]
    flags += [f"--no-{f.name.replace('_', '-')}" for f in fields if f.default is True]
    return [*flags, "--help"]


def write_script(shell: str, commands: tuple[Any, ...]) -> str:
    """Write the completion script of a shell; it completes files as well."""
    names = " ".join(command.name for command in commands)
    if shell == "fish":
        lines = [f"complete -c rankbits -n __fish_use_subcommand -a '{names}' -f"]
        for command in commands:
            seen = f"__fish_seen_subcommand_from {command.name}"
            lines += [f"complete -c rankbits -n '{seen}' -l {f[2:]}" for f in list_flags(command)]
        return "\n".join([INSTALL[shell], *lines])
    cases = "\n".join(f"    {c.name}) flags='{' '.join(list_flags(c))}' ;;" for c in commands)
    if shell == "zsh":
        return f"""{INSTALL[shell]}
_rankbits() {{
  local flags
  if (( CURRENT == 2 )); then compadd -- {names}; return; fi
  case $words[2] in
{cases}
  esac
  if [[ $words[CURRENT] == -* ]]; then compadd -- ${{=flags}}; else _files; fi
}}
_rankbits "$@" """.rstrip()
    return f"""{INSTALL[shell]}
_rankbits() {{
  local word=${{COMP_WORDS[COMP_CWORD]}} flags=
  if (( COMP_CWORD == 1 )); then COMPREPLY=($(compgen -W '{names}' -- "$word")); return; fi
  case ${{COMP_WORDS[1]}} in
{cases}
  esac
  if [[ $word == -* ]]; then COMPREPLY=($(compgen -W "$flags" -- "$word"))
  else COMPREPLY=($(compgen -f -- "$word")); fi
}}
complete -o filenames -F _rankbits rankbits"""


@dataclass(frozen=True)
class Completion:
    """Print a script that makes a shell complete commands and flags: rankbits completion bash."""

    name: ClassVar[str] = "completion"
    places: ClassVar[tuple[str, ...]] = ("shell",)
    commands: ClassVar[tuple[Any, ...]] = ()

    shell: str | None = option(None, "bash, zsh or fish")

    def work(self) -> None:
        print(write_script(_check.choice("shell", self.shell, SHELLS), self.commands))
