"""Build the site: ``make docs``. Pages in ``docs`` are joined by those that code makes: names and
commands from their docstrings, protocols by running them, benchmarks from the committed rows."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

from generated import api, commands, kept_bytes, protocols, rows, trained_texts  # noqa: E402

SITE = HERE.parent / "site"
NOTEBOOK = HERE / "notebooks" / "first_steps.ipynb"


def notebook() -> str:
    """The notebook as a page: its texts, code and outputs."""
    text = "[This page as a notebook](first_steps.ipynb).\n"
    for cell in json.loads(NOTEBOOK.read_text("utf-8"))["cells"]:
        source = "".join(cell["source"])
        text += (
            f"\n{source}\n" if cell["cell_type"] == "markdown" else f"\n```python\n{source}\n```\n"
        )
        printed = "".join("".join(out.get("text", "")) for out in cell.get("outputs", ()))
        text += f"```text\n{printed.rstrip()}\n```\n" if printed else ""
    return text


PAGES: dict[str, Callable[[], str]] = {
    "benchmarks.md": rows.page,
    "bytes.md": kept_bytes.page,
    "notebooks/first_steps.md": notebook,
    "reference/api.md": api.api,
    "reference/commands.md": commands.page,
    "reference/files.md": api.files,
    "reference/losses.md": api.all_losses,
    "reference/metrics.md": api.metrics,
    "reference/protocols.md": protocols.page,
    "reference/quantizers.md": api.all_quantizers,
    "trained_texts.md": trained_texts.page,
}


def on_files(files: Any, config: Any) -> Any:
    """MkDocs calls this once it has listed the files of ``docs``."""
    from mkdocs.structure.files import File

    for path, make in PAGES.items():
        files.append(File.generated(config, path, content=make()))
    return files


def main() -> None:
    from mkdocs.commands.build import build
    from mkdocs.config import load_config

    logging.basicConfig(level=logging.WARNING)  # strict: the first warning is also the last
    config = load_config(str(HERE.parent / "mkdocs.yml"), strict=True, site_dir=str(SITE))
    build(config)
    pages = len(list(SITE.rglob("*.html")))
    print(
        f"{SITE.name}/index.html and {pages - 1} more pages; python -m http.server -d {SITE.name}"
    )


if __name__ == "__main__":
    main()
