"""Index: the five verbs of every index, searched by codes or by questions."""

from __future__ import annotations

import abc
from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Protocol

from rankbits import _check
from rankbits.indexes.checks import LARGEST, UnknownId, check_facts
from rankbits.indexes.shortlist import choose_width, order_shortlist
from rankbits.kernels import check_precision
from rankbits.types import Codes, Questions, Results
from rankbits.types.codes import check_same_encoder

if TYPE_CHECKING:
    from typing import Self


ATTEMPTS = 5  # to order a shortlist before another process removes one of its ids


class Encoding(Protocol):
    """What an index needs of an encoder."""

    @property
    def fingerprint(self) -> str: ...

    def encode(self, inputs: Any, *, queries: bool = False) -> Codes: ...

    def ask(self, inputs: Any) -> Questions: ...


class Index(abc.ABC):
    """A database of codes that can be searched: add, remove, search, within, count.

    Ids are whole numbers (int64) or strings; one index has one kind. A call that is refused changes
    nothing.
    """

    bits: int
    most_found: int = LARGEST  # for one query
    encoder: Encoding | None = None  # makes codes of other inputs

    _facts: Mapping[str, str] = MappingProxyType({})

    @property
    def facts(self) -> Mapping[str, str]:
        """What the index stores about its codes: the ``fingerprint`` of their encoder, and the
        places of the ``encoder`` and the ``inputs``."""
        return self._facts

    def remember(self, facts: Mapping[str, str]) -> None:
        """Replace the facts by these; they are stored where the codes are."""
        self._facts = check_facts(facts)

    @property
    def fingerprint(self) -> str | None:
        """The fingerprint of the encoder that made the codes; None where it is unknown."""
        return self.facts.get("fingerprint")

    @abc.abstractmethod
    def add(self, codes: Codes, ids: Any = None) -> Self:
        """Store ``codes`` under ``ids`` (n,), no id twice in one call; returns self.

        The code of an id that is already stored is replaced. Without ``ids``, rows are numbered
        from the largest id on, from 0 in an empty index; an index of strings refuses that.
        """

    @abc.abstractmethod
    def remove(self, ids: Any) -> int:
        """Remove ``ids``; returns how many of them were stored."""

    def search(
        self,
        queries: Any,
        k: int,
        *,
        among: Any = None,
        precision: str = "int4",
        shortlist: int | None = None,
        coarse: int | None = None,
    ) -> Results:
        """The k nearest for each query, (Q, min(k, candidates)): by distance, ties by order of
        insertion unless the engine says otherwise.

        ``queries`` are ``Codes``, compared by Hamming distance (int32); ``Questions``, compared by
        their floats (float32); or inputs, which the encoder turns into one of these. ``among``: the
        only ids that may be found; unknown ones are ignored.

        The other options are for questions. ``precision`` is that of their weights in a scan:
        "int4", "int8" or "float". If they have a decoder, the scan lists max(20 k, 200) codes, and
        the nearest of these are found by decoding them. ``shortlist=n`` lists the n nearest (at
        least k) by Hamming distance and orders them by the distance of ``Questions``; equal
        distances keep the order of the list. With ``coarse=64`` the list holds the nearest by float
        weights of the first 64 bits, max(20 k, 200) unless ``shortlist`` says how many: quicker,
        and exact enough where codes are nested (``Reconstruction(nested=...)``). An engine that
        cannot scan by weights (PostgreSQL, Milvus) always lists by Hamming distance of all bits,
        max(20 k, 200) codes unless ``shortlist`` says how many.
        """
        queries, k = self._to_queries(queries), _check.cutoff(k)
        precision = check_precision(precision)
        wide = None if shortlist is None else max(k, _check.whole("shortlist", shortlist, 1))
        if isinstance(queries, Questions):
            return self._search_questions(queries, k, among, precision, wide, coarse)
        if wide is not None or coarse is not None:
            option = "shortlist" if wide is not None else "coarse"
            _check.refuse(f"{option} is for questions (encoder.ask); codes are searched exactly.")
        return self._search_codes(queries, k, among)

    @abc.abstractmethod
    def _search_codes(self, queries: Codes, k: int, among: Any) -> Results:
        """The k nearest by Hamming distance; all arguments but ``among`` are checked."""

    def _search_questions(
        self,
        questions: Questions,
        k: int,
        among: Any,
        precision: str,
        shortlist: int | None,
        coarse: int | None,
    ) -> Results:
        """The k nearest by questions: here by ordering a shortlist."""
        wide = shortlist or max(k, min(choose_width(k), self.most_found))
        for attempt in range(ATTEMPTS):
            near = self._search_codes(questions.codes(), wide, among)
            try:
                return order_shortlist(questions, near.ids, self.codes, k)
            except UnknownId:  # another process has removed one since
                if attempt == ATTEMPTS - 1:
                    raise
        raise AssertionError

    def codes(self, ids: Any) -> Codes:
        """The stored codes of ``ids``, in the same order; an unknown id is refused."""
        _check.refuse(f"{type(self).__name__} does not give codes back.")

    @abc.abstractmethod
    def within(self, queries: Any, radius: int, *, among: Any = None) -> Results:
        """Everything at Hamming distance ``radius`` or less, with ``offsets``; same order."""

    @abc.abstractmethod
    def count(self) -> int:
        """How many codes are stored."""

    @property
    def has_string_ids(self) -> bool | None:
        """Whether ids are strings; None in an empty index, which takes either kind."""
        return None

    def _to_codes(self, value: Any, queries: bool = False) -> Codes:
        """``Codes`` of this index's encoder; other inputs go through the encoder."""
        codes = value
        if not isinstance(codes, Codes):
            if self.encoder is None or isinstance(value, Questions):
                _check.refuse(
                    f"Codes are wanted here (rb.pack makes them); got {type(value).__name__}."
                )
            codes = self.encoder.encode(value, queries=queries)
        check_same_encoder(codes.fingerprint, self.fingerprint, "this index")
        return codes

    def _to_queries(self, value: Any) -> Codes | Questions:
        """Codes or questions for this index; inputs become what the encoder asks with."""
        questions = value
        if not isinstance(value, Questions):
            if isinstance(value, Codes) or getattr(self.encoder, "asks_with", "") != "questions":
                return self._to_query_codes(value)
            questions = self.encoder.ask(value)  # type: ignore[union-attr]
        check_same_encoder(questions.fingerprint, self.fingerprint, "this index", "questions")
        _check.same_bits(questions.bits, self.bits)
        return questions

    def _to_new_codes(self, value: Any) -> Codes:
        """As ``_to_codes``; an empty index takes over the fingerprint of its first codes."""
        codes = self._to_codes(value)
        if codes.bits != self.bits:
            _check.refuse(f"This index holds codes of {self.bits} bits; got codes of {codes.bits}.")
        if codes.fingerprint and self.fingerprint is None and len(codes) and not self.count():
            self.remember({**self.facts, "fingerprint": codes.fingerprint})
        return codes

    def _to_query_codes(self, value: Any) -> Codes:
        if isinstance(value, Questions):
            _check.refuse(
                "A radius is a Hamming distance, which questions do not have: ask within a radius "
                "by codes, or search for the k nearest."
            )
        codes = self._to_codes(value, queries=True)
        _check.same_bits(codes.bits, self.bits)
        return codes

    def close(self) -> None:  # noqa: B027
        """Close files and connections; no write that returned is lost."""

    def __len__(self) -> int:
        return self.count()

    def __bool__(self) -> bool:
        return True  # an empty index is still an index

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *reason: object) -> None:
        self.close()
