"""Losses of texts in sentence-transformers' convention, with a small network in its place."""

from __future__ import annotations

import pytest
import torch

import rankbits as rb
from rankbits.losses import FastAP, Nested, TieAwareAP, TieAwareNDCG, fastap_loss
from rankbits.texts import RankingLoss
from rankbits.texts.losses import name_texts


class Tiny(torch.nn.Module):
    """Token embeddings with dropout, their mean, and a layer of bits."""

    def __init__(self, bits: int = 12, dropout: float = 0.3) -> None:
        super().__init__()
        self.table = torch.nn.Embedding(50, 16)
        self.dropout = torch.nn.Dropout(dropout)
        self.layer = torch.nn.Linear(16, bits)

    def forward(self, features: dict) -> dict:
        rows = (
            self.dropout(self.table(features["input_ids"])) * features["attention_mask"][..., None]
        )
        mean = rows.sum(1) / features["attention_mask"].sum(1, keepdim=True)
        return {**features, "sentence_embedding": self.layer(mean)}


def make_column(texts: list[list[int]]) -> dict:
    widest = max(map(len, texts))
    tokens = torch.tensor([text + [0] * (widest - len(text)) for text in texts])
    lengths = torch.tensor([[len(text)] for text in texts])
    return {"input_ids": tokens, "attention_mask": (torch.arange(widest) < lengths).long()}


def draw_texts(count: int, seed: int) -> list[list[int]]:
    draw = torch.Generator().manual_seed(seed)
    lengths = torch.randint(1, 7, (count,), generator=draw).tolist()
    return [torch.randint(1, 50, (n,), generator=draw).tolist() for n in lengths]


def gradients(model: torch.nn.Module) -> list[torch.Tensor]:
    return [parameter.grad.clone() for parameter in model.parameters()]


def test_classes_are_ranked_as_the_loss_itself_does():
    torch.manual_seed(0)
    model, column = Tiny(dropout=0.0), make_column(draw_texts(20, 0))
    labels = torch.arange(20) % 4
    value = RankingLoss(model, "fastap")([column], labels)
    assert value == fastap_loss(model(column)["sentence_embedding"], labels)


@pytest.mark.parametrize("signs", ["neither", "database", "both"])
@pytest.mark.parametrize("columns", [1, 3])
def test_two_passes_give_the_loss_and_the_gradient_of_one(columns, signs):
    torch.manual_seed(1)
    model = Tiny(dropout=0.0)
    batch = [make_column(draw_texts(17, seed)) for seed in range(columns)]
    labels = torch.arange(17) % 5 if columns == 1 else None
    values, slopes = [], []
    for chunk in (None, 4):
        model.zero_grad()
        loss = Nested(FastAP(), (5,))
        value = RankingLoss(model, loss, signs=signs, chunk=chunk)(batch, labels)
        (3 * value).backward()
        values.append(value.detach())
        slopes.append(gradients(model))
    torch.testing.assert_close(values[0], values[1])
    assert any(slope.abs().max() > 1e-4 for slope in slopes[0])
    for one, two in zip(*slopes, strict=True):
        torch.testing.assert_close(one, two, atol=1e-6, rtol=1e-4)


def test_the_second_pass_draws_what_the_first_drew():
    """With dropout the gradient is that of one pass which drops the same."""
    model, column = Tiny(), make_column([[1, 2, 3]] * 8)
    masks: list[torch.Tensor] = []
    model.dropout.register_forward_hook(lambda module, inputs, output: masks.append(output != 0))
    torch.manual_seed(2)
    RankingLoss(model, FastAP(), chunk=4)([column], torch.arange(8) % 2).backward()
    assert len(masks) == 4
    assert torch.equal(masks[0], masks[2]) and torch.equal(masks[1], masks[3])
    assert not torch.equal(masks[0], masks[1])


def test_equal_texts_are_one_document_and_share_what_is_relevant():
    torch.manual_seed(3)
    model = Tiny(dropout=0.0)
    queries = [[1, 2], [3], [1, 2]]
    documents = [[7, 8, 9], [10], [11, 12]]
    value = RankingLoss(model, FastAP())([make_column(queries), make_column(documents)])
    z = [model(make_column(texts))["sentence_embedding"] for texts in (queries, documents)]
    affinity = torch.tensor([[1.0, 0.0, 1.0], [0.0, 1.0, 0.0]])
    wanted = fastap_loss(z[0][:2], affinity=affinity, database=z[1])
    torch.testing.assert_close(value, wanted)


def test_names_do_not_depend_on_padding():
    short, long = make_column([[4, 5], [6]]), make_column([[4, 5], [6], [1, 2, 3, 4]])
    assert torch.equal(name_texts(short), name_texts(long)[:2])
    assert len(set(name_texts(long).tolist())) == 3


def test_grades_come_from_labels_or_from_judgements():
    torch.manual_seed(4)
    model = Tiny(dropout=0.0)
    batch = [make_column([[1], [2], [1]]), make_column([[5], [6], [7]])]
    by_label = RankingLoss(model, TieAwareNDCG())(batch, torch.tensor([2, 1, 1]))
    judgements = {100: {5: 2, 7: 1}, 200: {6: 1, 99: 1}}
    numbers = torch.tensor([[100, 5], [200, 6], [100, 7]])
    loss = RankingLoss(model, TieAwareNDCG(), judgements=judgements)
    torch.testing.assert_close(loss(batch, numbers), by_label)
    everything = RankingLoss(model, TieAwareNDCG(), judgements={100: {5: 2, 6: 2, 7: 2}})
    assert everything(batch, numbers) < by_label


def test_memory_is_ranked_but_not_twice():
    torch.manual_seed(5)
    model = Tiny(dropout=0.0)
    loss = RankingLoss(model, FastAP(), memory=100)
    batch = [make_column([[1], [2]]), make_column([[5], [6]])]
    first = loss(batch)
    assert len(loss.memory) == 2
    torch.testing.assert_close(loss(batch), first)  # its documents are in the batch again
    other = [make_column([[3], [4]]), make_column([[8], [9]])]
    assert loss(other) != RankingLoss(model, FastAP())(other)
    assert loss.memory.labels.unique().numel() == 4
    classes = RankingLoss(model, FastAP(), memory=3)
    labels = torch.tensor([0, 0, 1, 1])
    column = make_column(draw_texts(4, 9))
    assert classes([column], labels) >= 0
    assert len(classes.memory) == 3
    assert torch.isfinite(classes([column], labels))


def test_nested_prefixes_learn_what_the_whole_does_not():
    """The first bits are trained where they are named, and only there."""
    torch.manual_seed(6)
    labels = torch.arange(24) % 4
    f = torch.randn(24, 8)
    losses = {}
    for prefixes in ((), (2,)):
        x = f.clone().requires_grad_()
        optimizer = torch.optim.Adam([x], lr=0.1)
        loss = Nested(TieAwareAP(), prefixes)
        for _ in range(40):
            optimizer.zero_grad()
            loss(x, labels).backward()
            optimizer.step()
        losses[prefixes] = float(TieAwareAP()(x.detach()[:, :2], labels))
    assert losses[(2,)] < losses[()] - 0.05
    loss.alpha = 3.0
    assert loss.loss.alpha == 3.0 and loss.takes_alpha and loss.takes_database


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: RankingLoss(Tiny(), "cel"), "loss must be one of"),
        (lambda: RankingLoss(Tiny(), signs="all"), "signs must be one of"),
        (lambda: RankingLoss(Tiny(), chunk=0), "chunk must be"),
        (lambda: RankingLoss(Tiny())([make_column([[1]])]), "needs a column 'label'"),
        (
            lambda: RankingLoss(Tiny())([make_column([[1]])] * 2, torch.tensor([[1, 2]])),
            "belong together",
        ),
        (
            lambda: RankingLoss(Tiny(), judgements={})([make_column([[1]])] * 2, torch.eye(3)[:1]),
            "must number 2 texts",
        ),
        (lambda: Nested(FastAP(), (4, 4)), "prefixes must grow"),
        (lambda: Nested(FastAP(), (4,))(torch.eye(4), torch.arange(4)), "less than all 4"),
    ],
)
def test_refusals(call, sentence):
    with pytest.raises(rb.Refusal, match=sentence):
        call()
