"""A norm that is multiplied into its convolution says what it said before."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from rankbits.models.efficientnet import ConvNorm, EfficientNetLite, SameConv
from rankbits.models.folding import convolve_normed
from rankbits.models.pixels import Pixels
from rankbits.models.resnet import ResNet50


def fill_norms(network: nn.Module) -> nn.Module:
    """Give the norms of a network statistics and weights, as training does."""
    draw = torch.Generator().manual_seed(0)
    for norm in (m for m in network.modules() if isinstance(m, nn.BatchNorm2d)):
        norm.running_mean.normal_(0, 0.5, generator=draw)
        norm.running_var.uniform_(0.2, 3, generator=draw)
        norm.weight.data.uniform_(-2, 2, generator=draw)
        norm.bias.data.normal_(generator=draw)
    return network


@pytest.fixture
def folds(monkeypatch):
    """Counts the convolutions that are given other weights than their own."""
    seen = []
    plain = nn.Conv2d._conv_forward

    def count_and_convolve(self, x, weight, bias):
        seen.append(weight is not self.weight)
        return plain(self, x, weight, bias)

    monkeypatch.setattr(nn.Conv2d, "_conv_forward", count_and_convolve)
    return seen


@pytest.mark.parametrize(
    "conv",
    [
        nn.Conv2d(6, 8, 3, padding=1),
        nn.Conv2d(6, 8, 1, stride=2, bias=False),
        nn.Conv2d(6, 12, 3, groups=6, dilation=2),
        nn.Conv2d(6, 8, 3, padding=1, padding_mode="reflect"),
        SameConv(6, 6, 5, 2, groups=6, bias=False),
        SameConv(6, 8, 3, 2),
    ],
    ids=["bias", "stride", "groups", "reflected", "depthwise", "same"],
)
def test_folded_and_plain_agree(conv):
    norm = fill_norms(nn.Sequential(nn.BatchNorm2d(conv.out_channels, eps=1e-3)))[0].eval()
    x = torch.randn(3, 6, 11, 10)
    with torch.no_grad():
        fused = convolve_normed(conv, norm, x)
        torch.testing.assert_close(fused, norm(conv(x)), atol=1e-5, rtol=1e-5)
        x = x.double()
        found, wanted = convolve_normed(conv.double(), norm.double(), x), norm(conv(x))
    torch.testing.assert_close(found, wanted, atol=1e-12, rtol=1e-12)


def test_it_is_folded_only_where_nothing_is_learned(folds):
    conv, norm, x = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), torch.randn(2, 3, 8, 8)
    norm.eval()
    convolve_normed(conv, norm, x).sum().backward()  # a frozen norm in a network that learns
    assert conv.weight.grad is not None and norm.weight.grad is not None
    norm.train()
    with torch.no_grad():
        convolve_normed(conv, norm, x)  # statistics are being taken
    assert norm.num_batches_tracked == 1
    lone = nn.BatchNorm2d(4, track_running_stats=False).eval()
    with torch.no_grad():
        torch.testing.assert_close(convolve_normed(conv, lone, x), lone(conv(x)))  # it keeps none
    assert not any(folds)
    norm.eval()
    with torch.inference_mode():
        convolve_normed(conv, norm, x)
    assert folds[-1]


@pytest.mark.parametrize("make", [lambda: EfficientNetLite(0), ResNet50], ids=["lite0", "resnet50"])
def test_a_network_embeds_what_it_learned(make, folds):
    torch.manual_seed(0)
    network = make().eval()
    for norm in (m for m in network.modules() if isinstance(m, nn.BatchNorm2d)):
        norm.running_var.uniform_(0.8, 1.2)
        norm.running_mean.normal_(0, 0.05)
    x = torch.rand(2, 3, 40, 36)
    wanted = network(x).detach()
    plain = len(folds)
    with torch.no_grad():
        found = network(x)
    if make is ResNet50:  # SameConv has a pass of its own
        assert not any(folds[:plain])
        assert folds[plain] and not folds[-1]  # at the end weights outnumber what they are used on
    scale = wanted.abs().max()
    torch.testing.assert_close(found / scale, wanted / scale, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("part", ["conv", "norm"])
@pytest.mark.parametrize("when", ["register_forward_hook", "register_forward_pre_hook"])
def test_a_hook_is_heard(part, when):
    made, heard = fill_norms(ConvNorm(3, 4, 3)).eval(), []
    handle = getattr(getattr(made, part), when)(lambda *_: heard.append(part))
    with torch.no_grad():
        made(torch.randn(1, 3, 6, 6))
        handle.remove()
        made(torch.randn(1, 3, 6, 6))
    assert heard == [part]


def test_weights_that_change_are_folded_anew():
    made = fill_norms(ConvNorm(3, 4, 3)).eval()
    x = torch.randn(1, 3, 6, 6)
    with torch.no_grad():
        before = made(x)
        made.norm.running_mean.add_(1)
        made.conv.weight.mul_(0.5)
        after = made(x)
        wanted = nn.functional.relu6(made.norm(made.conv(x)))
    assert not torch.equal(before, after)
    torch.testing.assert_close(after, wanted, atol=1e-5, rtol=1e-5)


def test_the_colours_of_a_pixel_lie_together_on_a_cpu():
    found = Pixels((0.5, 0.4, 0.3), (0.5, 0.5, 0.5), reverse=True)(torch.rand(2, 3, 5, 4))
    assert found.is_contiguous(memory_format=torch.channels_last) and found.shape == (2, 3, 5, 4)
