"""MobileNetV1 and SwiftFormer-XS: default configurations of Hugging Face transformers, random weights.

    python benchmarks/export/classifiers.py [NAME ...]

Needs torch and transformers (2.13 and 5.23 were used). Parameters that are constant before training are random: biases, scales
of batch norms, and the 1e-5 by which SwiftFormer multiplies the channels of its branches. Otherwise a bias of zero would be an
addition that does nothing. The statistics of batch norms are those of activations for eight random images.
"""

import sys
import tempfile
from pathlib import Path

import numpy as np
import onnx
import torch
from skeleton import write
from torch import Tensor, nn
from transformers import (
    MobileNetV1Config,
    MobileNetV1ForImageClassification,
    SwiftFormerConfig,
    SwiftFormerForImageClassification,
)

SHAPE = (1, 3, 224, 224)
NETWORKS = {
    "mobilenetv1": lambda: MobileNetV1ForImageClassification(MobileNetV1Config()),
    "swiftformer": lambda: SwiftFormerForImageClassification(SwiftFormerConfig()),
}


class Logits(nn.Module):
    """A classifier that returns the logits alone."""

    def __init__(self, classifier: nn.Module) -> None:
        super().__init__()
        self.classifier = classifier

    def forward(self, pixel_values: Tensor) -> Tensor:
        return self.classifier(pixel_values=pixel_values, return_dict=False)[0]


def enliven(model: nn.Module) -> None:
    """Give parameters that are constant random elements, and batch norms the statistics of eight random images."""
    for name, parameter in model.named_parameters():
        if parameter.numel() > 1 and bool((parameter == parameter.flatten()[0]).all()):
            is_bias = name.endswith("bias")
            torch.nn.init.normal_(parameter, 0, 0.1) if is_bias else torch.nn.init.uniform_(parameter, 0.3, 0.9)
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.momentum = None
    model.train()
    with torch.no_grad():
        model(torch.randn(8, *SHAPE[1:]))
    model.eval()


def export(name: str) -> None:
    """Write the skeleton of a network."""
    torch.manual_seed(0)
    model = Logits(NETWORKS[name]())
    enliven(model)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.onnx"
        torch.onnx.export(
            model, (torch.randn(SHAPE),), path, opset_version=18, external_data=False, input_names=["pixel_values"]
        )
        write(onnx.load(path), name, {"pixel_values": np.random.default_rng(0).normal(size=SHAPE).astype(np.float32)})


if __name__ == "__main__":
    for each in sys.argv[1:] or NETWORKS:
        export(each)
