"""Compile the kernels that most tests use: ``python tests/compile_kernels.py nearest|rest``.

Numba keeps what it compiled in files. Where these are missing, as in a fresh clone, every process
that reaches a kernel before another has written it compiles it again; so ``conftest.py`` runs both
halves of this script, side by side, before the parallel workers start.
"""

import sys

import numpy as np
import torch

import rankbits as rb
from rankbits.kernels import question_topk


def compile_rest(queries: rb.Codes, database: rb.Codes) -> None:
    rb.hamming_within(queries, database, 3)
    rb.hamming(queries, database)
    classes = np.arange(len(database)) % 3
    sets = np.eye(3)[classes] > 0
    for labels in (classes, sets):
        rb.hamming_counts(queries, database, labels[[0, 0]], labels)
    rb.hamming_counts(queries, database, relevance=np.stack([classes, classes]))
    for kind in (torch.float32, torch.float64):
        embeddings = torch.randn(9, 4, dtype=kind, requires_grad=True)
        rb.fastap_loss(embeddings, torch.arange(9) % 3).backward()


if __name__ == "__main__":
    torch.set_num_threads(1)
    codes = rb.pack(np.random.default_rng(0).normal(size=(30, 64)))
    if sys.argv[1] == "nearest":
        rb.hamming_topk(codes[:2], codes, 3)
        questions = rb.Questions(codes[:2].signs())
        question_topk(questions, codes, 3)
        question_topk(questions, codes, 3, precision="float")
    else:
        compile_rest(codes[:2], codes)
