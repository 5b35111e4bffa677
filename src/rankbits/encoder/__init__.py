"""Encoder: the one way from an input to bits, and the indexes that remember it."""

from rankbits.encoder.encoder import Encoder
from rankbits.encoder.files import load
from rankbits.encoder.indexing import make_index, open_index

__all__ = ["Encoder", "load", "make_index", "open_index"]
