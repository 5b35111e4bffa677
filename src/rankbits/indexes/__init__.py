"""Databases of codes that can be searched: add, remove, search, within, count."""

from rankbits.indexes.durable import FileIndex
from rankbits.indexes.embeddings import Embeddings, quantize_int8
from rankbits.indexes.export import to_arrow, to_faiss, to_numpy
from rankbits.indexes.hamming import HammingIndex
from rankbits.indexes.index import Index
from rankbits.indexes.repair import repair
from rankbits.indexes.rerank import Rerank

__all__ = [
    "Embeddings",
    "FileIndex",
    "HammingIndex",
    "Index",
    "Rerank",
    "quantize_int8",
    "repair",
    "to_arrow",
    "to_faiss",
    "to_numpy",
]
