"""How each histogram loss follows from a query's counts, as the papers print it, in plain torch.

``judge`` is the definition that tests the closed slopes of the other backends: it computes values
by formula and slopes by autograd.
"""

from __future__ import annotations

import torch

from rankbits.kernels.reference import continuation as to


def judge(
    formula: str, counts: torch.Tensor, gains: torch.Tensor | None
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """(values, valid, slopes) of counts (M, grades, bins + 1).

    ``values`` (M,) are the losses of the queries, 0 for those that are not ``valid`` (M,);
    ``slopes`` (M, grades, bins + 1) their derivatives by each count. Sums over all items of a
    query, such as the number of its neighbours, are constants. ``gains`` (grades,) is None where
    there are two grades: then the gain of a neighbour is 1.
    """
    with torch.enable_grad():
        counts = counts.detach().requires_grad_()
        sizes = counts.detach().sum(dim=2).nan_to_num().round()
        valid = sizes[:, 1:].sum(dim=1) > 0
        if formula == "mihash":
            valid = (sizes > 0).all(dim=1)
            values = -_measure_information(counts, sizes)
        elif formula.startswith("ndcg"):
            values = 1 - _measure_ndcg(formula, counts, sizes, gains)
        else:
            positive, every = counts[:, 1], counts.sum(dim=1)
            terms = fastap_terms if formula == "fastap" else ap_terms
            summed = terms(positive, every, formula).sum(dim=1)
            values = 1 - summed / sizes[:, 1].clamp(min=1)
        values = torch.where(valid, values, values * 0)
        (slopes,) = torch.autograd.grad(values.sum(), counts)
    return values.detach(), valid, slopes


def fastap_terms(positive: torch.Tensor, every: torch.Tensor, formula: str) -> torch.Tensor:
    """(M, bins + 1): h+_j H+_j / H_j, Eq. 14 of FastAP."""
    up_to, all_up_to = positive.cumsum(dim=1), every.cumsum(dim=1)
    empty = all_up_to == 0
    return positive * torch.where(empty, 0, up_to) / torch.where(empty, 1, all_up_to)


def ap_terms(positive: torch.Tensor, every: torch.Tensor, formula: str) -> torch.Tensor:
    """(M, bins + 1): N+ times what each bin adds to AP; a items, p of them relevant, lie before."""
    a, p = every.cumsum(dim=1) - every, positive.cumsum(dim=1) - positive
    if formula == "ap-simple":
        return positive * (2 * p + positive + 1) / (2 * a + every + 1)
    if formula == "ap-exact":
        slope = (positive - 1) * to.tilt(a, every)
        return positive * (slope + (p + 1) * to.mean_reciprocal(a, every))
    share = to.share_of_others(positive, every)
    mean = to.integral_reciprocal(a, every)
    return positive * (share + (p + 1 - share * (a + 1)) * mean)


def _measure_ndcg(
    formula: str, counts: torch.Tensor, sizes: torch.Tensor, gains: torch.Tensor | None
) -> torch.Tensor:
    discounts = {
        "ndcg-simple": to.midpoint_discount,
        "ndcg-relaxed": to.integral_discount,
        "ndcg-exact": to.spline_discount,
    }
    gains = counts.new_tensor([0.0, 1.0]) if gains is None else gains
    every = counts.sum(dim=1)
    discount = discounts[formula](every.cumsum(dim=1) - every, every)
    gained = (counts * gains[:, None]).sum(dim=1)
    ideal = _sum_ideal(sizes, gains)
    return (gained * discount).sum(dim=1) / torch.where(ideal > 0, ideal, 1)


def _sum_ideal(sizes: torch.Tensor, gains: torch.Tensor) -> torch.Tensor:
    """(M,): the DCG of each query's items in falling order of affinity."""
    end = sizes.flip(1).cumsum(dim=1).long()
    total = to.cumulative_discount(int(end.max()) if end.numel() else 0, sizes.device)
    start = torch.nn.functional.pad(end[:, :-1], (1, 0))
    return ((total[end] - total[start]) * gains.flip(0)).sum(dim=1)


def _measure_information(counts: torch.Tensor, sizes: torch.Tensor) -> torch.Tensor:
    """(M,): mutual information, in nats, of being a neighbour and the distance."""
    items = sizes.sum(dim=1, keepdim=True).clamp(min=1)
    joint, prior = counts / items[:, :, None], sizes / items
    apart = (prior[:, :, None] * joint.sum(dim=1, keepdim=True)).expand_as(joint)
    # an empty cell adds nothing
    present = joint > 0
    ratio = torch.where(present, joint, 1) / torch.where(present, apart, 1)
    return (joint * ratio.log()).sum(dim=(1, 2))
