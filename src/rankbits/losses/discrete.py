"""ADSH: a network learns discrete codes of the whole training set, and the codes learn from it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch

from rankbits import _check
from rankbits.losses.histogram import check_rows, full_precision, outside_graphs
from rankbits.losses.proxies import products
from rankbits.losses.relation import relate
from rankbits.losses.settings import check_weight

CELLS = 2**25  # pairs of rows compared at a time
ROWS = 2000  # rows that the codes are fitted to after an epoch: the number of ADSH's authors


@outside_graphs
def adsh_loss(
    embeddings: torch.Tensor,
    labels: Any,
    indices: torch.Tensor,
    signs: torch.Tensor,
    training_labels: torch.Tensor,
    ratio: float,
    *,
    gamma: float = 200.0,
) -> torch.Tensor:
    """Asymmetric deep supervised hashing: the sum over sampled rows i and training rows j of
    (<u_i, v_j> - K S'_ij)^2, plus gamma times the sum of |v_i - u_i|^2, over (M n) -> scalar.

    u = tanh z, where ``embeddings`` z (M, K) are the outputs for M sampled rows: the training rows
    ``indices`` (M,), with ``labels``. v in {-1, 1} are ``signs`` (n, K), the codes of all n
    training rows. S' = (1 + r) s - r: 1 where labels are shared, else -r. r is ``ratio``, the
    number of similar over the number of dissimilar pairs of the training set, in which each row is
    also paired with itself.

    >>> y = torch.tensor([0, 1])
    >>> adsh_loss(torch.zeros(1, 2), y[:1], y[:1], torch.ones(2, 2), y, ratio=1.0, gamma=3.0)
    tensor(7.)
    """
    z = check_rows("embeddings", embeddings, signs.shape[1])
    with full_precision(z):
        u, v = torch.tanh(z), signs.to(z.dtype)
        similar = _share_labels(labels, training_labels)
        wanted = (1 + ratio) * similar.to(z.dtype) - ratio
        misfit = (products(u, v) - signs.shape[1] * wanted).square().sum()
        quantization = (v[indices] - u).square().sum()
        return (misfit + gamma * quantization) / max(similar.numel(), 1)


def _share_labels(labels: Any, others: torch.Tensor) -> torch.Tensor:
    """Return bool (M, n): which rows share a label."""
    rows = len(labels)
    relation = relate(rows, len(others), others.device, labels=labels, database_labels=others)
    return relation.grades(0, rows) == 1


class ADSH(torch.nn.Module):
    """``adsh_loss`` with the codes that it learns, the buffer ``signs`` (n, bits). ``labels`` (n,)
    or multi-hot (n, C) are those of the training set; ``seed`` draws the first codes.

    Two steps alternate: the network learns the codes for ``every`` epochs, then the codes are
    fitted, bit by bit, to the outputs of ``sample`` rows (H2Q's paper: 3 and 5,000).

    >>> labels = torch.tensor([0, 0, 1, 1, 2, 2])
    >>> inputs = torch.eye(6)
    >>> model = torch.nn.Linear(6, 8)
    >>> loss, optimiser = ADSH(labels, bits=8), torch.optim.Adam(model.parameters(), 0.1)
    >>> for _ in range(10):
    ...     sample = torch.randperm(6)[:4]  # the authors: 2,000 rows, 3 epochs over them
    ...     for rows in sample.split(2):
    ...         optimiser.zero_grad()
    ...         loss(model(inputs[rows]), labels[rows], rows).backward()
    ...         optimiser.step()
    ...     loss.update_codes(model(inputs[sample]), sample)
    >>> loss.signs.shape, loss.signs.dtype
    (torch.Size([6, 8]), torch.int8)
    """

    takes_rows = True
    signs: torch.Tensor
    labels: torch.Tensor
    epochs: torch.Tensor

    def __init__(
        self,
        labels: Any,
        bits: int,
        *,
        gamma: float = 200.0,
        sample: int = ROWS,
        every: int = 1,
        seed: int = 0,
    ) -> None:
        super().__init__()
        self.sample = _check.whole("sample", sample, 1)
        self.every = _check.whole("every", every, 1)
        if self.every > 1:
            self.register_buffer("epochs", torch.zeros((), dtype=torch.long))
        self.bits = _check.whole("bits", bits, 1)
        self.gamma = check_weight("gamma", gamma)
        rows = len(labels) if hasattr(labels, "__len__") else 0
        labels = torch.from_numpy(_check.labels("labels", labels, rows, names=True).copy())
        _check.not_empty("training set", rows)
        draw = torch.Generator().manual_seed(_check.whole("seed", seed, 0))
        signs = 2 * torch.randint(0, 2, (rows, self.bits), generator=draw) - 1
        self.register_buffer("labels", labels)
        self.register_buffer("signs", signs.to(torch.int8))
        if labels.ndim == 1:
            similar = int(labels.unique(return_counts=True)[1].square().sum())
        else:
            similar = sum(int(part.sum()) for part in self._compare_in_parts(labels))
        self.ratio = similar / max(rows**2 - similar, 1)

    def forward(self, embeddings: torch.Tensor, labels: Any, indices: Any = None) -> torch.Tensor:
        """Compute the loss of ``embeddings`` z (M, bits) and ``labels`` of the training rows
        ``indices`` (M,)."""
        z = check_rows("embeddings", embeddings, self.bits)
        rows = self._check_indices(indices, len(z), z.device)
        return adsh_loss(z, labels, rows, self.signs, self.labels, self.ratio, gamma=self.gamma)

    def after_epoch(self, embed: Callable[[torch.Tensor], Any], seed: int) -> None:
        """Fit the codes to the outputs of training rows that ``seed`` draws, once in ``every``
        epochs."""
        if self.every > 1:
            self.epochs += 1
            if int(self.epochs) % self.every:
                return
        draw = torch.Generator().manual_seed(seed)
        drawn = torch.randperm(len(self.signs), generator=draw)[: self.sample].sort().values
        self.update_codes(*embed(drawn))

    @torch.no_grad()
    def update_codes(
        self, outputs: torch.Tensor, indices: Any, bits: Iterable[int] | None = None
    ) -> None:
        """Set each bit of all codes to its best value given the others, one bit after another.

        ``outputs`` z (m, bits) are those of the sampled training rows ``indices`` (m,). ``bits``
        says which bits, in what order; all of them by default. No step raises the loss of these
        rows; a bit whose two values are equally good stays.
        """
        z = check_rows("outputs", outputs, self.bits)
        rows = self._check_indices(indices, len(z), z.device)
        order = range(self.bits) if bits is None else list(bits)
        with full_precision(z):
            u = torch.tanh(z)
            gram, total = u.T @ u, u.sum(dim=0)
            pull = u.new_zeros(self.signs.shape).index_add_(0, rows, self.gamma * u)
            start = 0
            for similar in self._compare_in_parts(self.labels[rows]):
                part = slice(start, start := start + len(similar))
                shared = (1 + self.ratio) * (similar.to(u.dtype) @ u) - self.ratio * total
                target = self.bits * shared + pull[part]
                v = self.signs[part].to(u.dtype)
                for bit in order:
                    others = v @ gram[:, bit] - v[:, bit] * gram[bit, bit]
                    force = target[:, bit] - others
                    v[:, bit] = torch.where(force == 0, v[:, bit], force.sign())
                self.signs[part] = v.to(torch.int8)

    def _compare_in_parts(self, labels: torch.Tensor) -> Iterable[torch.Tensor]:
        """Yield bool (part, m): which rows of a part of the training set share one of ``labels``
        (m,)."""
        for part in self.labels.split(max(1, CELLS // max(len(labels), 1))):
            yield _share_labels(part, labels)

    def _check_indices(self, indices: Any, rows: int, device: torch.device) -> torch.Tensor:
        if indices is None:
            _check.refuse("indices must be given: the training row of each embedding.")
        indices = torch.as_tensor(indices, device=device, dtype=torch.long)
        if indices.shape != (rows,) or bool(((indices < 0) | (indices >= len(self.signs))).any()):
            _check.refuse(
                f"indices must name a training row, 0 to {len(self.signs) - 1:,}, for each of "
                f"{rows:,} embeddings."
            )
        return indices

    def extra_repr(self) -> str:
        return f"bits={self.bits}, gamma={self.gamma}, rows={len(self.signs)}"
