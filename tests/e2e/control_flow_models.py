"""Models with If, Loop and Scan in `control_flow`: small networks in bodies, and bodies with special cases.

A line that begins with `#` describes the model; `# constants: w(8,8,3,3) ...` gives it other random weights than `WEIGHTS`.
"""

import re
from pathlib import Path

import onnx
from parsed_models import parsed

WEIGHTS = "w0(16,16,3,3) w1(16,16,3,3) w2(16,16,3,3) v(16,16,1,1) b(16)"
MODELS = {path.stem: path.read_text() for path in sorted((Path(__file__).parent / "control_flow").glob("*.txt"))}

# The same without declared types in the body.
MODELS["untyped_loop"] = MODELS["loop"].replace("float[1,16,12,12] s", "s").replace("float[1,16,12,12] r", "r")


def load(name: str) -> onnx.ModelProto:
    """A model, with random weights."""
    lines = MODELS[name].splitlines()
    given = next((line for line in lines if line.startswith("# constants: ")), WEIGHTS)
    shapes = {
        weight: tuple(int(extent) for extent in extents.split(","))
        for weight, extents in re.findall(r"(\w+)\(([\d,]+)\)", given)
    }
    text = "\n".join(line for line in lines if not line.startswith("#"))
    return parsed(f'<ir_version: 8, opset_import: ["" : 18]>\n{text}', **shapes)
