"""The same names in numba: loops that let go of the GIL, run on a pool of threads."""
