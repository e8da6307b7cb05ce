"""Plan one network for a chip described in a TOML file, and for one described by a class.

python examples/describe_a_chip.py
"""

import tempfile
from collections.abc import Sequence
from pathlib import Path

import zoo

import layoutopt
from layoutopt.extend import Format, Op, Signature, Slot, Storage, Value, estimated_volume


class Toy:
    """A cost model is any object with these members; here convolutions are fast in NHWC, and other ops have no preference."""

    name = "toy"
    dialect = "functions"

    def preferred_formats(self, op: Op) -> Sequence[dict[Slot, Format]]:
        nhwc, ohwi = Format.parse("NHWC"), Format.parse("OHWI")
        preferred = {Slot("in", 0): nhwc, Slot("in", 1): ohwi, Slot("out", 0): nhwc}
        return [preferred] if op.op_type == "Conv" and op.inputs[0] is not None and op.inputs[0].rank == 4 else []

    def kernel_seconds(self, op: Op, signature: Signature) -> float:
        x = signature.inputs[0] if signature.inputs else None
        slow = op.op_type == "Conv" and x is not None and x.format.is_canonical
        return 2e-4 if slow else 1e-4

    def conversion_seconds(self, value: Value, src: Storage, dst: Storage) -> float:
        assert value.shape is not None
        return 0.0 if src.format.same_bytes(dst.format, value.shape) else 1e-9 * estimated_volume(value.shape)


def main() -> None:
    described = Path(__file__).parent / "my_npu.toml"
    with tempfile.TemporaryDirectory() as folder:
        path = zoo.save("keras_mobilenetv3s", Path(folder))
        for target in (str(described), Toy()):
            report = layoutopt.optimize(path, target).report
            formats = sorted({op.outputs[0] or "-" for op in report.ops})
            print(
                f"{report.target}: {report.after.casts} casts, formats {', '.join(formats)}, {report.verification.status}"
            )


if __name__ == "__main__":
    main()
