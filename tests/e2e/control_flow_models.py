"""Models with If, Loop and Scan in onnx's text syntax: small networks in bodies, and bodies with special cases.

A line that begins with `#` describes the model; `# constants: w(8,8,3,3) ...` gives it other random weights than `WEIGHTS`.
A text that reads `a` has `STEM` in front unless it has its own, and one that does not compute `y` has `HEAD` behind.
"""

import re

import onnx
from parsed_models import parsed

IMAGE = "float[1,16,12,12]"
CONV = "<kernel_shape = [3, 3], pads = [1, 1, 1, 1]>"
STEM, HEAD = f"[stem] a = Conv {CONV} (x, w0)", "[head] y = Conv <kernel_shape = [1, 1]> (z, v)"
WEIGHTS = "w0(16,16,3,3) w1(16,16,3,3) w2(16,16,3,3) v(16,16,1,1) b(16)"

MODELS = {
    "loop": f"""
        # a residual block, six times
        g ({IMAGE} x) => ({IMAGE} y) <int64 m = {{6}}, bool t = {{1}}> {{
          [loop] z = Loop (m, t, a) <body = again (int64 i, bool c, {IMAGE} s) => (bool d, {IMAGE} r) {{
            d = Identity(c)
            [one] p = Conv {CONV} (s, w1, b)
            q = Relu(p)
            [two] o = Conv {CONV} (q, w2)
            u = Add(s, o)
            r = Relu(u)
          }}>
        }}""",
    "dynamic_loop": f"""
        # the number of iterations and the size of the image are inputs
        g (float[N,16,H,W] x, int64 m) => (float[N,16,H,W] y) <bool t = {{1}}> {{
          [loop] z = Loop (m, t, a) <body = again (int64 i, bool c, s) => (bool d, r) {{
            d = Identity(c)
            [one] p = Conv {CONV} (s, w1, b)
            r = Relu(p)
          }}>
        }}""",
    "loop_with_outputs": f"""
        # every iteration returns an image and reads a captured one
        g ({IMAGE} x, {IMAGE} e) => ({IMAGE} y, float[T,1,16,12,12] all, float[U] sums) <int64 m = {{3}}> {{
          [stem] a = Conv {CONV} (e, w0)
          [loop] z, all, sums = Loop (m, , x) <body = again (int64 i, bool c, s) => (bool d, r, q, n) {{
            d = Identity(c)
            [one] p = Conv {CONV} (s, w1, b)
            q = Add(p, a)
            r = Relu(q)
            n = ReduceMax <keepdims = 0> (r)
          }}>
        }}""",
    "if": f"""
        # one branch or the other, with the same weights in both
        g ({IMAGE} x, bool c) => ({IMAGE} y) {{
          [if] z = If (c) <
            then_branch = yes () => ({IMAGE} r) {{ [one] p = Conv {CONV} (a, w1, b) r = Relu(p) }},
            else_branch = no () => ({IMAGE} r) {{ [two] p = Conv {CONV} (a, w1) r = Sigmoid(p) }}>
        }}""",
    "odd_branches": f"""
        # a branch that returns a captured value, results of several shapes, a constant
        g ({IMAGE} x, bool c) => ({IMAGE} y, float k, float[?,?,?,?] l) {{
          [if] z, k, l = If (c) <
            then_branch = yes () => ({IMAGE} r, float q, float[1,16,12,12] s)
              <float q = {{2.0}}> {{ r = Identity(a) s = Relu(a) }},
            else_branch = no () => ({IMAGE} r, float q, float[1,16,6,6] s) {{
              [two] r = Conv {CONV} (a, w1) q = Constant <value = float {{3.0}}> ()
              s = MaxPool <kernel_shape = [2, 2], strides = [2, 2]> (r) }}>
        }}""",
    "certain_if": f"""
        # the condition is known
        g ({IMAGE} x) => ({IMAGE} y, int64[4] s) <int64 one = {{1}}, int64 zero = {{0}}> {{
          h = Shape(a) n = Gather(h, zero) c = Equal(n, one)
          [if] y, s = If (c) <
            then_branch = yes () => ({IMAGE} r, int64[4] h2) {{
              [inner] r = If (c) <
                then_branch = yes2 () => ({IMAGE} o) {{ [one] o = Conv {CONV} (a, w1, b) }},
                else_branch = no2 () => ({IMAGE} o) {{ o = Neg(x) }}>
              h2 = Identity(h) }},
            else_branch = no () => ({IMAGE} r, int64[4] h2) {{ r = Neg(a) h2 = Add(h, h) }}>
        }}""",
    "nested": f"""
        # an If in a Loop in an If; the innermost captures from three levels
        g ({IMAGE} x, bool c, int64 m) => ({IMAGE} y) <bool t = {{1}}> {{
          [if] z = If (c) <
            then_branch = yes () => ({IMAGE} r) {{
              f = Relu(a)
              [loop] r = Loop (m, t, a) <body = again (int64 i, bool k, {IMAGE} s) => (bool d, {IMAGE} o) {{
                d = Identity(k)
                [one] p = Conv {CONV} (s, w1, b)
                two = Constant <value = int64 {{2}}> ()
                j = Mod(i, two) e = Cast <to = 9> (j)
                [inner] o = If (e) <
                  then_branch = yes3 () => ({IMAGE} q) {{ q = Add(p, f) }},
                  else_branch = no3 () => ({IMAGE} q) {{ [two] h = Conv {CONV} (p, w2) q = Add(h, a) }}>
              }}> }},
            else_branch = no () => ({IMAGE} r) {{ r = Sigmoid(a) }}>
        }}""",
    "scan": f"""
        # a filter over a sequence of images, with a state
        g (float[5,1,16,12,12] x, {IMAGE} h) => ({IMAGE} y, float[5,1,16,12,12] film) {{
          [scan] z, film = Scan <num_scan_inputs = 1, body = step ({IMAGE} s, {IMAGE} e) => ({IMAGE} r, {IMAGE} o) {{
            [one] p = Conv {CONV} (s, w1, b)
            [two] q = Conv {CONV} (e, w2)
            u = Add(p, q) r = Relu(u) o = MaxPool {CONV} (r)
          }}> (h, x)
        }}""",
    "scan_of_rows": """
        # axes that are not the first, from behind and backwards; the result of a convolution is scanned
        g (float[2,16,12,5] x, float[2,16,12] h) => (float[2,16,12] y, float[2,16,5,12] rows) {
          y, rows = Scan <num_scan_inputs = 1, scan_input_axes = [-1], scan_output_axes = [2], scan_input_directions = [1],
              scan_output_directions = [1], body = step (float[2,16,12] s, float[2,16,12] e) => (float[2,16,12] r,
              float[2,16,12] o) {
            p = Add(s, e) r = Relu(p) o = Sigmoid(p)
          }> (h, a)
        }""",
    "no_trip": f"""
        # the loop does not run
        g ({IMAGE} x) => ({IMAGE} y, float[T,1,16,12,12] none) <int64 m = {{0}}, bool t = {{1}}> {{
          z, none = Loop (m, t, a) <body = again (int64 i, bool c, {IMAGE} s) => (bool d, {IMAGE} r, {IMAGE} o) {{
            d = Identity(c) r = Conv {CONV} (s, w1, b) o = Relu(r) }}>
        }}""",
    "false_from_the_start": f"""
        # the loop does not run because its condition is false
        g ({IMAGE} x, bool go) => ({IMAGE} y) <int64 m = {{4}}> {{
          no = Not(go) never = And(go, no)
          z = Loop (m, never, a) <body = again (int64 i, bool c, {IMAGE} s) => (bool d, {IMAGE} r) {{
            d = Identity(c) r = Conv {CONV} (s, w1, b) }}>
        }}""",
    "until": f"""
        # a loop without a number of iterations and without an initial condition
        g ({IMAGE} x) => ({IMAGE} y) <int64 three = {{3}}> {{
          z = Loop (, , a) <body = again (int64 i, bool c, {IMAGE} s) => (bool d, {IMAGE} r) {{
            d = Less(i, three) p = Conv {CONV} (s, w1, b) r = Relu(p) }}>
        }}""",
    "growing": f"""
        # a state with another shape in every iteration, and one with a constant shape
        g ({IMAGE} x) => (float[N,16,12,12] y, {IMAGE} z) <int64 m = {{3}}> {{
          g, z = Loop (m, , a, a) <body = again (int64 i, bool c, s, u) => (bool d, r, o) {{
            d = Identity(c) p = Conv {CONV} (u, w1, b) o = Relu(p) r = Concat <axis = 0> (s, o) }}>
          [head] y = Conv <kernel_shape = [1, 1]> (g, v)
        }}""",
    "named_growing": f"""
        # the body declares the extent of its state N, which is wrong
        g (float[N,16,12,12] x) => (float[M,16,12,12] y) <int64 m = {{3}}> {{
          g = Loop (m, , a) <body = again (int64 i, bool c, float[N,16,12,12] s) => (bool d, float[N2,16,12,12] r) {{
            d = Identity(c) p = Conv {CONV} (s, w1, b) r = Concat <axis = 0> (s, p) }}>
          [head] y = Conv <kernel_shape = [1, 1]> (g, v)
        }}""",
    "swapped": f"""
        # two states are exchanged, one is unchanged, and the iteration number is a scan output
        g ({IMAGE} x, {IMAGE} e) => ({IMAGE} y, {IMAGE} o, int64[T] n) <int64 m = {{3}}> {{
          z, o, k, n = Loop (m, , a, e, x) <body = again (int64 i, bool c, {IMAGE} s, {IMAGE} u, {IMAGE} k1) => (bool c,
          {IMAGE} q, {IMAGE} s, {IMAGE} k1, int64 i) {{
            p = Conv {CONV} (u, w1, b) q = Relu(p) }}>
          w = Add(z, k)
          [head] y = Conv <kernel_shape = [1, 1]> (w, v)
        }}""",
    "sequence_state": f"""
        # a loop that collects images in a sequence
        g ({IMAGE} x) => ({IMAGE} y, {IMAGE} last) <int64 m = {{3}}, int64 at = {{1}}> {{
          none = SequenceEmpty <dtype = 1> ()
          z, many = Loop (m, , a, none) <body = again (int64 i, bool c, {IMAGE} s, seq(float[1,16,12,12]) l)
              => (bool d, {IMAGE} r, seq(float[1,16,12,12]) k) {{
            d = Identity(c) p = Conv {CONV} (s, w1, b) r = Relu(p) k = SequenceInsert(l, r) }}>
          last = SequenceAt(many, at)
        }}""",
    "optional_state": f"""
        # an optional state
        g ({IMAGE} x, bool c) => ({IMAGE} y) {{
          maybe = If (c) <
            then_branch = yes () => (optional(float[1,16,12,12]) r) {{ p = Conv {CONV} (a, w1, b) r = Optional(p) }},
            else_branch = no () => (optional(float[1,16,12,12]) r) {{ r = Optional(a) }}>
          z = OptionalGetElement(maybe)
        }}""",
    "hidden_names": f"""
        # initializers of bodies with the names of outer ones, and of each other
        g ({IMAGE} x, bool c) => ({IMAGE} y) <float k = {{2.0}}> {{
          s = Mul(a, k)
          [if] z = If (c) <
            then_branch = yes () => ({IMAGE} r) <float k = {{3.0}}> {{ p = Conv {CONV} (s, w1, b) r = Mul(p, k) }},
            else_branch = no () => ({IMAGE} r) <float j = {{4.0}}> {{ p = Mul(s, j) q = Conv {CONV} (p, w2) r = Mul(q, k) }}>
        }}""",
    "default_input": f"""
        # a body reads an input that has a default
        g ({IMAGE} x, bool c, float k) => ({IMAGE} y) <float k = {{2.0}}> {{
          [if] z = If (c) <
            then_branch = yes () => ({IMAGE} r) {{ p = Conv {CONV} (a, w1, b) r = Mul(p, k) }},
            else_branch = no () => ({IMAGE} r) {{ r = Div(a, k) }}>
        }}""",
    "shapes_inside": f"""
        # shape computations of an exporter in a body, on a captured value
        g ({IMAGE} x, bool c) => (float[?,?,?] y) {{
          minus = Constant <value = int64[1] {{-1}}> ()
          [if] y = If (c) <
            then_branch = yes () => (r) {{
              h = Shape(a) zero = Constant <value = int64 {{0}}> () one = Constant <value = int64 {{1}}> ()
              n = Gather(h, zero) k = Gather(h, one) ax = Constant <value = int64[1] {{0}}> ()
              n1 = Unsqueeze(n, ax) k1 = Unsqueeze(k, ax) t = Concat <axis = 0> (n1, k1, minus)
              p = Conv {CONV} (a, w1, b) f = Reshape(p, t) r = Transpose <perm = [0, 2, 1]> (f) }},
            else_branch = no () => (r) {{
              ex = Constant <value = int64[3] {{0, 16, -1}}> ()
              f = Reshape(a, ex) r = Transpose <perm = [0, 2, 1]> (f) }}>
        }}""",
    "blocked_only_inside": f"""
        # all convolutions are in bodies, two levels deep
        g ({IMAGE} x, bool c) => ({IMAGE} y) <int64 m = {{2}}> {{
          [if] y = If (c) <
            then_branch = yes () => ({IMAGE} r) {{
              r = Loop (m, , x) <body = again (int64 i, bool k, {IMAGE} s) => (bool d, {IMAGE} o) {{
                d = Identity(k) p = Conv {CONV} (s, w1, b) o = Conv {CONV} (p, w2) }}> }},
            else_branch = no () => ({IMAGE} r) {{ r = Neg(x) }}>
        }}""",
    "channels_that_leave_padding": """
        # constants: w0(17,3,3,3) w1(17,17,3,3) v(5,17,1,1)
        # 17 channels, so that blocks have padding at all boundaries of regions
        g (float[1,3,12,12] x, bool c) => (float[1,5,12,12] y) <int64 m = {3}> {
          [stem] a = Conv <kernel_shape = [3, 3], pads = [1, 1, 1, 1]> (x, w0)
          l = Loop (m, , a) <body = again (int64 i, bool k, s) => (bool d, o) {
            d = Identity(k) p = Conv <kernel_shape = [3, 3], pads = [1, 1, 1, 1]> (s, w1) q = Sigmoid(p) o = Add(q, s) }>
          e = Exp(l)
          z = If (c) <then_branch = yes () => (r) { r = Conv <kernel_shape = [3, 3], pads = [1, 1, 1, 1]> (e, w1) },
                      else_branch = no () => (r) { r = Log(e) }>
        }""",
    "mapped_sequence": f"""
        # an op whose body has no rule captures values
        g ({IMAGE} x) => ({IMAGE} y, {IMAGE} f) <int64 at = {{0}}> {{
          q = Relu(a)
          s = SequenceConstruct(a, q)
          many = SequenceMap <body = each ({IMAGE} e) => ({IMAGE} r) {{ p = Conv {CONV} (e, w1, b) r = Add(p, q) }}> (s)
          f = SequenceAt(many, at)
          [head] y = Conv <kernel_shape = [1, 1]> (q, v)
        }}""",
}


# The same without declared types in the body.
MODELS["untyped_loop"] = MODELS["loop"].replace(f"{IMAGE} s", "s").replace(f"{IMAGE} r", "r")


def load(name: str) -> onnx.ModelProto:
    """A model, with random weights."""
    lines = [line.strip() for line in MODELS[name].strip().splitlines()]
    header, *body = (line for line in lines if line and not line.startswith("#"))
    text = "\n".join(body)
    if re.search(r"\ba\b", text) and "[stem]" not in text:
        text = f"{STEM}\n{text}"
    if not re.search(r"^(\[\w+\] )?y\b", text, re.MULTILINE):
        text = f"{text[:-1]}{HEAD}\n}}"
    given = next((line for line in lines if line.startswith("# constants: ")), WEIGHTS)
    shapes = {
        weight: tuple(int(extent) for extent in extents.split(","))
        for weight, extents in re.findall(r"(\w+)\(([\d,]+)\)", given)
    }
    return parsed(f'<ir_version: 8, opset_import: ["" : 18]>\n{header}\n{text}', **shapes)
