"""Slices of a blocked axis stay blocked if they begin at a block, in the law of layout rules and in onnxruntime's kernels."""

from collections import Counter

import numpy as np
import onnx
import onnx.numpy_helper
import onnx.parser
import pytest
from test_rules_handmade import ints, made, session
from test_rules_samples import frozen

import layoutopt
from layoutopt.cost_models.registry import host_target
from layoutopt.ops import is_canonical
from layoutopt.testing import check_rule
from layoutopt.testing.rules import legal_signatures, lifted

BLOCKS = {"cpu-avx2": 8, "cpu-avx512": 16}


def test_every_signature_computes_the_same() -> None:
    x = (2, 40, 4, 3)
    ranges = ((0, 16), (16, 32), (16, 40), (-8, 99), (4, 20), (16, 17))
    every = [made("y = Slice (x, s, e, a)", x=x, s=ints(start), e=ints(stop), a=ints(1)) for start, stop in ranges]
    every.append(made("y = Slice (x, s, e, a)", x=x, s=ints(1, 16), e=ints(3, 32), a=ints(2, -3)))
    every.append(made("y = Slice (x, s, e, a, t)", x=x, s=ints(0), e=ints(32), a=ints(1), t=ints(2)))
    every.append(made("y = Slice <starts=[16], ends=[32], axes=[1]> (x)", x=x, opset=9))
    assert check_rule(*(frozen(sample) or sample for sample in every), load=session) > len(every)


@pytest.mark.parametrize(
    ("start", "stop", "blocked"), [(16, 32, True), (16, 40, True), (16, 30, False), (4, 20, False)]
)
def test_where_blocks_begin(start: int, stop: int, blocked: bool) -> None:
    sample = made(f"y = Slice <starts=[{start}], ends=[{stop}], axes=[1]> (x)", x=(1, 40, 4, 3), opset=9)
    (op,) = lifted(sample.model).ops
    plain = [each for each in legal_signatures(op, is_thorough=True) if not is_canonical(each)]
    formats = {str(storage.format) for each in plain for storage in each.inputs if storage is not None}
    assert ("NCHW16c" in formats) == blocked


@pytest.mark.skipif(host_target() not in BLOCKS, reason="the blocks of this processor are not known")
@pytest.mark.parametrize("opset", [9, 18])
def test_the_kernels_need_no_reorder(opset: int) -> None:
    node = "b = Slice (a, s, e, one)" if opset > 9 else "b = Slice <starts = [16], ends = [48], axes = [1]> (a)"
    model = onnx.parser.parse_model(
        f'<ir_version: 8, opset_import: ["" : {opset}]> g (float[1,32,16,16] x) => (float[?,?,?,?] y)'
        f"{{a = Conv <pads = [1,1,1,1]> (x, v) {node} y = Conv <pads = [1,1,1,1]> (b, w)}}"
    )
    generator = np.random.default_rng(0)
    arrays = {name: generator.normal(size=(64, 32, 3, 3), scale=0.05).astype(np.float32) for name in "vw"}
    if opset > 9:
        arrays |= {"s": ints(16), "e": ints(48), "one": ints(1)}
    model.graph.initializer.extend(onnx.numpy_helper.from_array(array, name) for name, array in arrays.items())
    result = layoutopt.optimize(model, host_target(), dialect="onnxruntime")
    assert result.report.verification.status == "passed"
    found = Counter(node.op_type for node in result.proto.graph.node if "block_guard" not in node.output[0])
    assert found["Slice"] == 1 and found["ReorderOutput"] == 1 and not found["Transpose"]
