"""The hot loops, and the only room that knows numba, triton or a device.

It has three storeys: the plain definition (``reference``), the same functions in numba (``cpu``)
and, where a GPU helps, in triton (``cuda``), and the functions here, which check arguments, lay the
data out and choose a backend in each call. ``RANKBITS_BACKEND=reference|cpu|cuda`` forces one.
"""

from rankbits.kernels.codes import (
    Words,
    hamming,
    hamming_counts,
    hamming_topk,
    hamming_within,
    words,
)
from rankbits.kernels.histogram import SKIP, Pairs, Setting, histogram_loss
from rankbits.kernels.questions import (
    LaidOut,
    check_precision,
    inverse_lengths,
    lay_out,
    order_rows,
    question_topk,
)
from rankbits.kernels.replay import Recording, find_recording
from rankbits.kernels.rows import scale_rows, scale_rows_backward
from rankbits.kernels.tables import (
    Tables,
    cut_parts,
    make_tables,
    tables_bytes,
    tables_topk,
    tables_within,
    time_tables,
)
from rankbits.kernels.views import see_images, to_floats

__all__ = [
    "SKIP",
    "LaidOut",
    "Pairs",
    "Recording",
    "Setting",
    "Tables",
    "Words",
    "check_precision",
    "cut_parts",
    "find_recording",
    "hamming",
    "hamming_counts",
    "hamming_topk",
    "hamming_within",
    "histogram_loss",
    "inverse_lengths",
    "lay_out",
    "make_tables",
    "order_rows",
    "question_topk",
    "scale_rows",
    "scale_rows_backward",
    "see_images",
    "tables_bytes",
    "tables_topk",
    "tables_within",
    "time_tables",
    "to_floats",
    "words",
]
