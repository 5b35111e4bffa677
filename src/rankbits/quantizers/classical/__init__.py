"""The shallow supervised hashing methods that TALR compares itself with, on embeddings.

Each learns from pairs: rows that share a label are similar, and without labels the nearest rows
are. ``affinity`` says which, ``cuts`` finds the best values of one bit, ``trees`` and ``machines``
learn to make it.
"""

from rankbits.quantizers.classical.bre import BRE
from rankbits.quantizers.classical.fasthash import FastHash
from rankbits.quantizers.classical.machash import MACHash
from rankbits.quantizers.classical.structhash import StructHash

__all__ = ["BRE", "FastHash", "MACHash", "StructHash"]
