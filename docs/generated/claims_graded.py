"""TALR's claims on a set that is not in its paper: CIFAR-100 with graded relevance."""

from __future__ import annotations

from generated.claims import Claim, ahead
from generated.evidence import Place

GRADED = {"": "talr/cifar100", ", frozen network": "talr/cifar100-frozen"}
RIVALS = {"dpsh": "DPSH", "dtsh": "DTSH", "hashnet": "HashNet"}


def judge_graded(more: str, folder: str) -> tuple[Claim, Claim]:
    """The claims that the loss made for a figure has the best of that figure."""
    ndcg = ("TALR-NDCG, simple", Place(f"{folder}/talr-ndcg", "none"))
    ap = ("TALR-AP, simple", Place(f"{folder}/talr-ap", "none"))
    rivals = [(said, Place(f"{folder}/{name}", "none")) for name, said in RIVALS.items()]
    mihash = [("MIHash", Place(f"{folder}/mihash", "none"))]
    beside = [] if more else mihash  # it fails when fine-tuned, and does not count there
    rivals += mihash if more else []
    rule = "ahead in the mean over seeds in every comparison, paired by seed"
    return (
        Claim(
            "TALR",
            f"CIFAR-100, graded: TALR-NDCG ahead in NDCG{more}",
            "As in Table 3 for NUS-WIDE: codes trained for NDCG have the best NDCG. Here items of "
            "the same class have grade 2, and items of the same category of classes grade 1.",
            rule,
            (folder,),
            ahead([ndcg], [ap, *rivals], folder, beside=beside),
        ),
        Claim(
            "TALR",
            f"CIFAR-100, graded: TALR-AP ahead in AP_T{more}",
            "The same runs, judged by whether the category is shared.",
            rule,
            (folder,),
            ahead([ap], [ndcg, *rivals], folder, "mAP", beside),
        ),
    )


CLAIMS = tuple(claim for more, folder in GRADED.items() for claim in judge_graded(more, folder))
