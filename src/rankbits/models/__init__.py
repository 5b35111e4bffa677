"""Networks that make embeddings: heads, backbones, and their published weights."""

from rankbits.models.backbones import (
    BACKBONES,
    Embedder,
    find_head,
    group_parameters,
    make_backbone,
    make_embedder,
)
from rankbits.models.classic import Classic
from rankbits.models.convolution import SmallConv
from rankbits.models.efficientnet import EfficientNetLite
from rankbits.models.googlenet import GoogLeNet
from rankbits.models.heads import MLP, EmbeddingHead, Features, HashHead
from rankbits.models.pixels import Pixels
from rankbits.models.resnet import ResNet18, ResNet50
from rankbits.models.weights import (
    PUBLISHED,
    Converted,
    convert_weights,
    load_published,
    load_weights,
    weights_path,
)

__all__ = [
    "BACKBONES",
    "MLP",
    "PUBLISHED",
    "Classic",
    "Converted",
    "EfficientNetLite",
    "Embedder",
    "EmbeddingHead",
    "Features",
    "GoogLeNet",
    "HashHead",
    "Pixels",
    "ResNet18",
    "ResNet50",
    "SmallConv",
    "convert_weights",
    "find_head",
    "group_parameters",
    "load_published",
    "load_weights",
    "make_backbone",
    "make_embedder",
    "weights_path",
]
