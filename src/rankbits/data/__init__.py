"""Read examples from files, split them, and draw batches of them."""

from rankbits.data.batches import Batches, RandomBatches
from rankbits.data.digits import digits
from rankbits.data.examples import Examples
from rankbits.data.folders import read_examples
from rankbits.data.images import ImageFiles, Unreadable, decode
from rankbits.data.labels import read_labels_file
from rankbits.data.protocol import Protocol, find_leaks
from rankbits.data.samplers import (
    SAMPLERS,
    CategoryBatches,
    ClassBatches,
    PartlyCategoryBatches,
    make_sampler,
)
from rankbits.data.splits import split_own
from rankbits.data.texts import Texts

__all__ = [
    "SAMPLERS",
    "Batches",
    "CategoryBatches",
    "ClassBatches",
    "Examples",
    "ImageFiles",
    "PartlyCategoryBatches",
    "Protocol",
    "RandomBatches",
    "Texts",
    "Unreadable",
    "decode",
    "digits",
    "find_leaks",
    "make_sampler",
    "read_examples",
    "read_labels_file",
    "split_own",
]
