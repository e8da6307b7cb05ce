"""Models in 16 bits are upcast to float32 for comparison if their rounding errors hide faults."""

import numpy as np
import onnx
import onnx.parser
import pytest
from onnx import numpy_helper

from layoutopt.runtime.session import Session
from layoutopt.verification import Verification, verify_models
from layoutopt.verification.edits import upcast_to_float32

SIZE, DEPTH = 64, 6


def chain(dtype: str = "float16", *, order: int = 0, wrong: float = 1.0, cancels: bool = True) -> bytes:
    """Products that are summed in two halves, in either order, and differences of large numbers that leave errors.

    Args:
        dtype: of everything.
        order: which half comes first, and how they are added up.
        wrong: a factor of one weight in the third product.
        cancels: whether there are such differences. They are rounded by ops Cast, which onnxruntime leaves where they are.
    """
    generator = np.random.default_rng(3)
    inputs = f"{dtype}[8,{SIZE}] x"
    model = onnx.parser.parse_model(
        f'<ir_version: 8, opset_import: ["" : 17]> g ({inputs}) => ({dtype}[8,{SIZE}] y) {{}}'
    )
    element = model.graph.input[0].type.tensor_type.elem_type
    kind = onnx.helper.tensor_dtype_to_np_dtype(element)
    tensors = {"big": np.asarray(100.0, np.float32), "halves": np.asarray([SIZE // 2, SIZE // 2], np.int64)}
    lines, value = [], "x"
    for number in range(DEPTH):
        weight = generator.normal(size=(SIZE, SIZE)) / np.sqrt(SIZE)
        if number == 2:
            weight[1, 2] *= wrong
        halves = np.split(weight, 2)
        tensors |= {f"w{number}_{half}": halves[half] for half in (0, 1)}
        lines.append(f"a{number}_0, a{number}_1 = Split <axis = 1> ({value}, halves)")
        lines += [f"p{number}_{half} = MatMul (a{number}_{half}, w{number}_{half})" for half in (0, 1)]
        if cancels:  # a + (b + 100) - 100 loses what (a + 100) + b loses elsewhere
            lines += [f"f{number}_{half} = Cast <to = 1> (p{number}_{half})" for half in (0, 1)]
            lines += [f"s{number} = Add (f{number}_{order}, big)", f"r{number} = Cast <to = {element}> (s{number})"]
            lines += [f"q{number} = Cast <to = 1> (r{number})", f"t{number} = Add (q{number}, f{number}_{1 - order})"]
            lines += [f"u{number} = Sub (t{number}, big)", f"v{number} = Cast <to = {element}> (u{number})"]
        else:
            lines.append(f"v{number} = Add (p{number}_{order}, p{number}_{1 - order})")
        value = f"v{number}"
    lines.append(f"y = Identity ({value})")
    model.graph.node.extend(onnx.parser.parse_node(line) for line in lines)
    for name, array in tensors.items():
        numbers = array.astype(kind) if array.dtype == np.float64 else array
        model.graph.initializer.append(numpy_helper.from_array(numbers, name))
    onnx.checker.check_model(model, full_check=True)
    return model.SerializeToString()


def judged(rewritten: bytes, original: bytes | None = None) -> Verification:
    return verify_models(original or chain(), rewritten)


def test_sums_in_another_order_differ_by_what_rounding_does_to_the_original() -> None:
    verdict = judged(chain(order=1))
    assert verdict.status == "passed", verdict.reason
    assert verdict.worst is not None and verdict.worst.error > 1e-3


@pytest.mark.parametrize("factor", [0.0, -1.0, 2.0])
def test_what_errors_hide_is_found(factor: float) -> None:
    assert judged(chain(order=1, wrong=factor)).status == "failed"


def test_a_rewritten_model_may_not_be_much_coarser_than_the_original() -> None:
    """A rewritten model with larger rounding errors than the original fails, even if it is equal in exact arithmetic."""
    verdict = judged(chain(), chain(cancels=False))
    assert verdict.status == "failed"


def test_wide_numbers_have_the_values_of_the_narrow_ones() -> None:
    """float16 with onnxruntime's casts around float32 kernels, and float32 throughout: the same up to rounding."""
    narrow, wide = chain(cancels=False), upcast_to_float32(chain(cancels=False))
    assert wide is not None
    feed = {"x": np.random.default_rng(0).normal(size=(8, SIZE)).astype(np.float16)}
    one, other = (Session(model).run(None, feed)[0] for model in (narrow, wide))
    assert one.dtype == np.float16 and other.dtype == np.float32
    assert np.abs(one - other).max() < 5e-3 * np.abs(other).max()


def test_a_type_that_no_kernel_takes_is_compared_as_wide_numbers() -> None:
    plain = chain("bfloat16", cancels=False)
    with pytest.raises(Exception, match="NOT_IMPLEMENTED"):
        Session(plain)
    verdict = judged(chain("bfloat16", cancels=False, order=1), plain)
    assert verdict.status == "passed"
    assert verdict.reason.startswith(
        "with float32 instead of 16-bit types; with 16-bit types the original cannot be run: "
    )
    assert judged(chain("bfloat16", cancels=False, wrong=-9.0), plain).status == "not verified"


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_everything_that_says_a_type_is_widened(dtype: str) -> None:
    number = {"float16": 10, "bfloat16": 16}[dtype]
    text = f"""<ir_version: 10, opset_import: ["" : 21, "own" : 1]>
    g ({dtype}[4] x, bool b) => ({dtype}[4] y, {dtype}[4] z)
    <{dtype}[4] h = {{1, 2, 3, 4}}, {dtype}[4] s> {{
        s = own.Scaled (x)
        y = If (b) <then_branch = t () => ({dtype}[4] u) {{ u = Add (s, h) }},
                    else_branch = e () => ({dtype}[4] v) {{ n = Cast <to = 1> (x) v = Cast <to = {number}> (n) }}>
        r = EyeLike <dtype = {number}> (q)
        q = ConstantOfShape (l)
        z = Add (x, x)
    }}
    <domain: "own", opset_import: ["" : 21]> Scaled (a) => (c) {{
        f = Constant <value_float = 3.0> ()
        k = Cast <to = {number}> (f)
        c = Mul (a, k)
    }}"""
    model = onnx.parser.parse_model(text.replace("        r = EyeLike <dtype = 16> (q)\n", ""))
    model.graph.initializer.append(numpy_helper.from_array(np.asarray([4, 4], np.int64), "l"))
    order = sorted(model.graph.node, key=lambda node: node.op_type == "EyeLike")
    del model.graph.node[:]
    model.graph.node.extend(order)
    wide = upcast_to_float32(model.SerializeToString())
    assert wide is not None
    session = Session(wide)
    assert [each.type for each in session.get_inputs()] == [f"tensor({dtype})", "tensor(bool)"]
    assert {each.type for each in session.get_outputs()} == {"tensor(float)"}
