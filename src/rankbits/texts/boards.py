"""Bits of texts on the public boards of ``mteb``."""

from __future__ import annotations

from typing import Any

import numpy as np

from rankbits import _check


class BitsModel:
    """A model that ``mteb.evaluate`` can run, judged by its bits instead of its floats.

        mteb.evaluate(BitsModel(model, questions=True), tasks)

    ``encoder`` is an ``Encoder`` of texts, or a ``SentenceTransformer`` whose outputs have the bits
    as signs (``add_bits``). Texts become rows of -1 and +1, whose product falls with their Hamming
    distance. With ``questions`` the queries of retrieval keep their floats. ``name`` is the name on
    the board, owner/model. mteb breaks ties in one order; ``rankbits.evaluate`` averages over all.
    """

    def __init__(
        self, encoder: Any, *, questions: bool = False, name: str = "rankbits/bits"
    ) -> None:
        if name.count("/") != 1:
            _check.refuse(f"name must be owner/model; got {name!r}.")
        self.encoder, self.questions, self.name = encoder, questions, name

    def encode(
        self, inputs: Any, *, prompt_type: Any = None, batch_size: int = 32, **options: Any
    ) -> np.ndarray:
        """float32 (n, bits) of the texts in ``inputs``, batches with a list ``text`` each."""
        texts = [text for batch in inputs for text in batch["text"]]
        floats = self.questions and getattr(prompt_type, "value", prompt_type) == "query"
        if hasattr(self.encoder, "ask"):
            rows = self.encoder.ask(texts).weights if floats else self.encoder.encode(texts).signs()
            return np.asarray(rows, np.float32)
        rows = np.asarray(self.encoder.encode(texts, batch_size=batch_size), np.float32)
        return rows if floats else np.where(rows > 0, np.float32(1), np.float32(-1))

    def similarity(self, first: Any, second: Any) -> np.ndarray:
        """The product of each row of ``first`` with each of ``second``."""
        return np.atleast_2d(first) @ np.atleast_2d(second).T

    def similarity_pairwise(self, first: Any, second: Any) -> np.ndarray:
        """The product of each row of ``first`` with the same row of ``second``."""
        return (np.atleast_2d(first) * np.atleast_2d(second)).sum(1)

    @property
    def mteb_model_meta(self) -> Any:
        """The description of the model that mteb asks for."""
        from mteb.models.model_meta import ModelMeta, ScoringFunction

        facts = {"name": self.name, "similarity_fn_name": ScoringFunction.DOT_PRODUCT}
        return ModelMeta.create_empty(facts)
