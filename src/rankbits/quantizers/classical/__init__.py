"""The shallow supervised hashing methods that TALR compares itself with, on embeddings.

Each learns from pairs: rows that share a label are similar; without labels, the nearest rows are.
``affinity`` finds the pairs, ``cuts`` the best values of one bit for the rows, and ``trees`` and
``machines`` learn to compute that bit.
"""

from rankbits.quantizers.classical.bre import BRE
from rankbits.quantizers.classical.fasthash import FastHash
from rankbits.quantizers.classical.machash import MACHash
from rankbits.quantizers.classical.structhash import StructHash

__all__ = ["BRE", "FastHash", "MACHash", "StructHash"]
