"""Doctests are collected from every module that this machine can import."""

from importlib.util import find_spec

collect_ignore_glob = [] if find_spec("triton") else ["src/rankbits/kernels/cuda/*"]
