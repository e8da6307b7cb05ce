"""Graphs of NNSmith, a generator that solves the constraints of operators with z3: an example has the oracle of random graphs.

NNSmith builds a model of torch, which torch's TorchScript exporter writes: the newer exporter cannot trace NNSmith's models.
"""

import random
import warnings
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper

from . import oracle
from .campaign.isolation import Outcome
from .campaign.part import Part
from .cases import Case, draw_target
from .choices import Seeded, between
from .graph_builder import random_array
from .graphs import keep_case
from .oracle import Verdict, evaluate
from .reduce import steps_of

_NODES = 8  # operators of NNSmith, each of which is exported as several nodes
_ELEMENTS = 1 << 12  # of a tensor


@cache
def _model_type() -> Any:
    """NNSmith's type of ONNX models, with an exporter that can write them."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # there is no graphviz
        import torch
        from nnsmith.materialize import Model
    torch.set_num_threads(1)
    torch.onnx.export = partial(torch.onnx.export, dynamo=False)
    return Model.init("onnx", backend_target="cpu")


def _generated(seed: int) -> onnx.ModelProto | None:
    """A model; None if NNSmith finds none, or torch cannot export it, as one with complex numbers."""
    import torch
    from nnsmith.graph_gen import model_gen

    kind = _model_type()
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of torch, about its exporter
        try:
            generator = model_gen(
                opset=kind.operators(),
                method="symbolic-cinit",
                seed=seed,
                max_elem_per_tensor=_ELEMENTS,
                max_nodes=_NODES,
                timeout_ms=10_000,
            )
            model = kind.from_gir(generator.make_concrete())
            model.refine_weights()
            found = model.native_model
        except Exception:  # of NNSmith, z3 and torch
            return None
    assert isinstance(found, onnx.ModelProto)
    return found


def case_of(seed: int) -> Case | None:
    """The example of a seed; None if no graph results."""
    model = _generated(seed)
    if model is None:
        return None
    choices = Seeded(f"nnsmith {seed}")
    constants = {tensor.name: numpy_helper.to_array(tensor) for tensor in model.graph.initializer}
    feed = {}
    for each in model.graph.input:
        shape = [dim.dim_value for dim in each.type.tensor_type.shape.dim]
        dtype = onnx.helper.tensor_dtype_to_np_dtype(each.type.tensor_type.elem_type)
        feed[each.name] = random_array(between(choices, 0, 99), shape, dtype)
    try:
        steps = steps_of(model, feed)
    except Exception:  # onnxruntime's exceptions have no common base
        return None
    target, dialect = draw_target(choices)
    return Case(model, [feed], steps, constants, target, dialect, "inference", seed=choices.number(0, 1 << 16))


def examine(seed: int) -> Verdict:
    """The verdict on one example."""
    case = case_of(seed)
    return Verdict("no graph") if case is None else evaluate(case)


def keep(seed: int, outcome: Outcome, folder: Path) -> None:
    """Save a failing example and its reduced form."""
    keep_case(case_of(seed), outcome, folder)


def explain(seed: int, outcome: Outcome) -> Outcome:
    """The outcome with the component that ended the process."""
    case = case_of(seed)
    return outcome if case is None else oracle.explain(case)


def prepare() -> None:
    """Import NNSmith and torch."""
    _model_type()


PART = Part(
    title="graphs of NNSmith",
    criterion="the optimised graph computes the same outputs, and a second optimisation changes no byte",
    examine=examine,
    keep=keep,
    prepare=prepare,
    explain=explain,
)
