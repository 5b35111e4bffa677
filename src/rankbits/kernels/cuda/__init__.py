"""The same names in Triton. Float32 on a CUDA device; no atomics, so the same every time."""
