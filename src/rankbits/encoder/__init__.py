"""Encoder: the one way from an input to bits, and the indexes that remember it."""

from rankbits.encoder.encoder import Encoder
from rankbits.encoder.files import load
from rankbits.encoder.fitting import fit_texts
from rankbits.encoder.indexing import make_index, open_index
from rankbits.encoder.judging import evaluate_index

__all__ = ["Encoder", "evaluate_index", "fit_texts", "load", "make_index", "open_index"]
