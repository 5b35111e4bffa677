"""Write the reference, one entry for each public name, from the docstrings: ``make docs``."""

from __future__ import annotations

import inspect
from pathlib import Path

import rankbits as rb

FOLDER = Path(__file__).parent.parent / "site"


def entry(name: str) -> str:
    value = getattr(rb, name)
    plain = inspect.ismodule(value) or (inspect.isclass(value) and issubclass(value, Exception))
    shown = f"{name}{inspect.signature(value)}" if not plain else name
    return f"## `{name}`\n\n```python\n{shown}\n```\n\n{inspect.getdoc(value)}\n"


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    pages = "\n".join(entry(name) for name in rb.__all__)
    (FOLDER / "reference.md").write_text(f"# rankbits {rb.__version__}\n\n{rb.__doc__}\n{pages}")
    print(f"{FOLDER.name}/reference.md: {len(rb.__all__)} names")


if __name__ == "__main__":
    main()
