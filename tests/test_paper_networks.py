"""The papers' networks: their layers, and their weights from their publishers' files."""

from __future__ import annotations

import pytest
import torch

from paper_weights import FILES, make_network, write_weights
from rankbits import Refusal
from rankbits.models import classic, convert_weights, make_backbone

# channels x height x width before the fully connected layers, or the mean over the image, at 224
GRIDS = {"alexnet-full": (256, 6, 6), "vgg16-full": (512, 7, 7), "vgg-f": (256, 6, 6)}


@pytest.fixture(autouse=True)
def _few_full(monkeypatch):
    monkeypatch.setattr(classic, "FULL", 16)


@pytest.mark.parametrize("name", FILES)
def test_a_publishers_file_becomes_the_network(name, tmp_path, monkeypatch):
    if FILES[name].endswith(".mat"):
        pytest.importorskip("scipy.io")
    monkeypatch.setenv("RANKBITS_DATA", str(tmp_path / "root"))
    network = make_network(name).eval()
    convert_weights(name, write_weights(name, tmp_path, network))
    loaded = make_backbone(name, "imagenet").eval()
    if FILES[name].endswith(".mat"):  # the mean over the image of the file's mean image
        mean = torch.tensor([100.0, 120.0, 140.0]).view(1, 3, 1, 1) / 255
        assert torch.allclose(loaded.pixels.mean, mean)
        network.pixels.mean.copy_(mean)
    images = torch.rand(2, 3, 80, 70)
    with torch.no_grad():
        features = loaded(images)
        assert torch.equal(features, network(images))
    assert features.shape == (2, loaded.features) and features.std() > 0


@pytest.mark.parametrize("name", GRIDS)
def test_the_grid_is_that_of_the_full_layers(name):
    network = make_network(name).eval()
    with torch.no_grad():
        maps = network.convolutions(network.pixels(torch.rand(1, 3, 224, 224)))
    assert maps.shape[1:] == GRIDS[name]
    drops = [type(layer).__name__ for layer in network.top if not list(layer.parameters())]
    assert drops.count("Dropout") == 2 and (drops[-1] == "Dropout") == (name == "vgg16-full")


def test_sizes_are_the_published_ones(monkeypatch):
    """The numbers of weights without the layer that names 1,000 classes."""
    monkeypatch.setattr(classic, "FULL", 4096)
    with torch.device("meta"):
        counts = {n: sum(p.numel() for p in make_backbone(n).parameters()) for n in FILES}
    assert counts == {
        "alexnet-full": 61_100_840 - 4_097_000,
        "vgg16-full": 138_357_544 - 4_097_000,
        "resnet18": 11_689_512 - 513_000,
        "vgg-f": 60_834_536 - 4_097_000,
        "googlenet": 6_998_552 - 1_025_000,
    }


def test_local_response_is_over_five_channels():
    """CNN-F: x / (2 + 1e-4 * sum of squares over 5 channels)^.75."""
    network = make_network("vgg-f")
    x = torch.rand(1, 7, 1, 1)
    near = sum(x[:, i] ** 2 for i in range(1, 6))
    wanted = x[:, 3] / (2 + 1e-4 * near) ** 0.75
    assert torch.allclose(network.convolutions[2](x)[:, 3], wanted)


@pytest.mark.parametrize("name", FILES)
def test_another_file_is_refused(name, tmp_path):
    path = tmp_path / FILES[name]
    path.write_bytes(b"no weights")
    with pytest.raises(Refusal, match="truncated, damaged or not a"):
        convert_weights(name, path, tmp_path / "out.safetensors")
    path.unlink()
    with pytest.raises(Refusal, match="must hold one file"):
        convert_weights(name, tmp_path, tmp_path / "out.safetensors")
