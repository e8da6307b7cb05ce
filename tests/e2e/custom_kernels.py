"""A network with an operator that only a library of kernels has, and that library."""

import shutil
import subprocess
from pathlib import Path

import numpy as np
import onnx
import pytest
from parsed_models import parsed

_SOURCE = Path(__file__).parent / "kernels/halve.c"
_NET = """<ir_version: 10, opset_import: ["" : 18, "test.kernels" : 1]>
net (float[1, 24, 24, 16] x) => (float[1, 16, 24, 24] y) <float[1, 16, 24, 24] b, float[1] s> {
    a = Transpose <perm = [0, 3, 1, 2]> (x)
    s = test.kernels.Halve (c)
    b = Conv <pads = [1, 1, 1, 1]> (a, w)
    y0 = test.kernels.Halve (b)
    y = Mul (y0, s)
}"""


def network() -> onnx.ModelProto:
    """The model: the operator on a computed value, and once on a constant."""
    return parsed(_NET, w=(16, 16, 3, 3), c=np.asarray([6.0], np.float32))


def compiled(folder: Path) -> Path:
    """The library, made by the C compiler of this machine."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("there is no C compiler")
    path = folder / "halve.so"
    subprocess.run([compiler, "-shared", "-fPIC", "-std=c99", "-o", path, _SOURCE], check=True)
    return path
