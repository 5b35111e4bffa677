"""The same names in numba: loops that let go of the GIL, run on a pool of threads."""

from rankbits.kernels.cpu.stale import forget_changed

forget_changed()
