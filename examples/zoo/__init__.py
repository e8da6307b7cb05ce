"""Real networks in small files.

The `.onnx` files here are networks as their exporters wrote them (torch.onnx on Hugging Face transformers and diffusers, Keras
with channels-last data), opset 18, with every large weight emptied. The doc_string of a weight contains the statistics of
its elements as JSON: `{"normal": [mean, std]}`, `{"uniform": [low, high]}` or `{"fill": value}`. `load` fills the weight with
random numbers of these statistics, the same ones every time.

| network | features |
|---|---|
| resnet50, mobilenetv2, upernet | convolutions throughout |
| efficientnet_b0 | squeeze-and-excite, SiLU, an AveragePool with a kernel larger than its input |
| convnext_tiny | LayerNormalization over channels, Transposes around every block |
| keras_mobilenetv3s, keras_densenet121 | channels-last exports: Transposes everywhere, batch norms as Sub, Mul, Add |
| mobilevit, segformer_b0, detr | convolutions and attention in one graph |
| vit_s, swinv2 | attention: head shuffles, window partitions |
| sd_vae_decoder | GroupNorm through Reshape and InstanceNormalization, upsampling |
| whisper_enc | 1-D convolutions |

`deployed` has networks that people deploy, with symbolic sizes. Those of `benchmarks/export/decoders.py` are decoders with
key-value caches: gpt2, llama, qwen2, t5; `script`, `dynamo` and `genai` are their exporters, and `int4` has products of 4-bit
integers.
"""

import json
import zlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
from onnx import numpy_helper

FOLDER = Path(__file__).parent
NAMES = sorted(path.stem for path in FOLDER.glob("*.onnx"))
DEPLOYED = sorted(path.stem for path in (FOLDER / "deployed").glob("*.onnx"))


def load(name: str) -> onnx.ModelProto:
    """A network of NAMES or DEPLOYED with weights; KeyError if there is no such network."""
    if name not in (*NAMES, *DEPLOYED):
        raise KeyError(f"no network {name!r}; there are {', '.join((*NAMES, *DEPLOYED))}")
    return filled(onnx.load((FOLDER if name in NAMES else FOLDER / "deployed") / f"{name}.onnx"))


def filled(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model, with random weights instead of the emptied ones."""
    for tensor in constants(model.graph):
        filled_tensor(tensor)
    return model


def filled_tensor(tensor: onnx.TensorProto) -> onnx.TensorProto:
    """The tensor, with elements if it is emptied."""
    if tensor.doc_string.startswith("{"):
        tensor.CopyFrom(numpy_helper.from_array(_values(tensor), tensor.name))
    return tensor


def constants(graph: onnx.GraphProto) -> Iterator[onnx.TensorProto]:
    """The initializers of a graph and the tensors of its Constant nodes, also of the graphs inside of it."""
    yield from graph.initializer
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.HasField("t") and node.op_type == "Constant":
                yield attribute.t
            if attribute.HasField("g"):
                yield from constants(attribute.g)


def save(name: str, folder: Path) -> Path:
    """Write a network with weights into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.onnx"
    onnx.save(load(name), path)
    return path


def _values(tensor: onnx.TensorProto) -> np.ndarray:
    # The tensor's name is the seed, so every machine gets the same network.
    generator = np.random.default_rng(zlib.crc32(tensor.name.encode()))
    ((kind, argument),) = json.loads(tensor.doc_string).items()
    shape = tuple(tensor.dims)
    drawn = {
        "fill": lambda: np.full(shape, argument),
        "uniform": lambda: generator.uniform(*argument, size=shape),
        "normal": lambda: generator.normal(*argument, size=shape),
    }[kind]()
    return drawn.astype(onnx.helper.tensor_dtype_to_np_dtype(tensor.data_type))
