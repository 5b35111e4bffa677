"""The command that compares runs, codes and reports."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from rankbits._check import refuse
from rankbits._option import option


@dataclass(frozen=True)
class WriteReport:
    """Compare runs, codes and reports: a table, and a page (.html) or Markdown (.md)."""

    name: ClassVar[str] = "report"
    places: ClassVar[tuple[str, ...]] = ("sources",)

    sources: tuple[str, ...] = option(
        (),
        "folders of judged runs, folders with queries.npz and database.npz, "
        "QUERIES.npz,DATABASE.npz, or reports (.json); NAME= before one names it, and sources with "
        "the same name are seeds of one method",
    )
    out: str | None = option(None, "the page to write: .html or .md", "o")
    figure: str = option("mAP", "the figure that methods are compared by")
    k: tuple[int, ...] = option((10, 100, 1000), "cutoffs, where codes are judged", "k")
    relevance: str = option("any", "any: shares a label; count: number of shared labels")
    query_images: str | None = option(
        None, "images of the queries, in their order: an .npz with 'images', a folder or a table"
    )
    database_images: str | None = option(None, "images of the database, in the same way")
    samples: int = option(4, "queries shown with their nearest images; 0: none")
    measure: bool = option(True, "time a search by each method's codes")
    seed: int = option(0, "seed of the random swaps that test differences")

    def work(self) -> None:
        from rankbits.papers.protocols import find_protocol
        from rankbits.report import compare

        if not self.sources:
            refuse("Give what to compare: rankbits report RUN... -o page.html.")
        if self.out and Path(self.out).suffix.lower() not in (".html", ".htm", ".md"):
            refuse(f"{self.out} must end in .html or .md.")
        if (self.query_images is None) != (self.database_images is None):
            refuse("Give both --query-images and --database-images, or neither.")
        images = None
        if self.query_images is not None and self.database_images is not None:
            images = (self.query_images, self.database_images)
        comparison = compare(
            self.sources,
            figure=self.figure,
            k=self.k,
            relevance=self.relevance,
            images=images,
            find_protocol=find_protocol,
            many=self.samples,
            measure=self.measure,
            seed=self.seed,
        )
        if self.out:
            comparison.save(self.out)
        print(comparison)
        for sentence in comparison.missing:
            print(sentence)
        if self.out:
            print(f"-> {self.out}")
