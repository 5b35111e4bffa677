"""The hot loops, and the only room that knows numba, triton or a device.

Three storeys: the plain definition (``reference``), the same names in numba (``cpu``) and in triton
(``cuda``), and the functions here that check arguments, lay the data out and pick a backend inside
the call. ``RANKBITS_BACKEND=reference|cpu|cuda`` forces one.
"""

from rankbits.kernels.codes import (
    Words,
    hamming,
    hamming_counts,
    hamming_topk,
    hamming_within,
    words,
)
from rankbits.kernels.histogram import SKIP, Pairs, soft_counts, soft_counts_backward
from rankbits.kernels.questions import (
    LaidOut,
    check_precision,
    inverse_lengths,
    lay_out,
    order_rows,
    question_topk,
)

__all__ = [
    "SKIP",
    "LaidOut",
    "Pairs",
    "Words",
    "check_precision",
    "hamming",
    "hamming_counts",
    "hamming_topk",
    "hamming_within",
    "inverse_lengths",
    "lay_out",
    "order_rows",
    "question_topk",
    "soft_counts",
    "soft_counts_backward",
    "words",
]
