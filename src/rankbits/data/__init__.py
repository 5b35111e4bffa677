"""Files, datasets, protocols, samplers: whatever touches a disk or an order of examples."""

from rankbits.data.batches import Batches, RandomBatches
from rankbits.data.digits import digits
from rankbits.data.examples import Examples
from rankbits.data.folders import read_examples
from rankbits.data.images import ImageFiles, Unreadable, decode
from rankbits.data.labels import read_labels_file
from rankbits.data.protocols import PROTOCOLS, Protocol, check, protocol, split_own
from rankbits.data.samplers import (
    SAMPLERS,
    CategoryBatches,
    ClassBatches,
    PartlyCategoryBatches,
    sampler,
)

__all__ = [
    "PROTOCOLS",
    "SAMPLERS",
    "Batches",
    "CategoryBatches",
    "ClassBatches",
    "Examples",
    "ImageFiles",
    "PartlyCategoryBatches",
    "Protocol",
    "RandomBatches",
    "Unreadable",
    "check",
    "decode",
    "digits",
    "protocol",
    "read_examples",
    "read_labels_file",
    "sampler",
    "split_own",
]
