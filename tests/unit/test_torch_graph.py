"""Planned graphs run in PyTorch, where that is installed (the extra `torch`): the tool that checks GPU targets."""

import sys
from pathlib import Path

import light
import numpy as np
import onnxruntime
import pytest

import layoutopt
from layoutopt.formats import Format

torch = pytest.importorskip("torch")
sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))


def test_strides_are_formats() -> None:
    from torch_graph import is_in, stored_in

    x = torch.arange(2 * 3 * 4 * 5).reshape(2, 3, 4, 5)
    for text in ("NCHW", "NHWC", "CHWN", "NHCW"):
        format = Format.parse(text)
        stored = stored_in(x, format)
        assert torch.equal(stored, x) and is_in(stored, format)
        assert [stored.stride(axis) for axis in format.order] == sorted(stored.stride(), reverse=True)
    assert stored_in(x, Format.parse("NHWC")).is_contiguous(memory_format=torch.channels_last)
    assert not is_in(x, Format.parse("NHWC"))


@pytest.mark.parametrize("name", ["light_squeezenet", "light_resnet50"])
def test_a_planned_network_computes_the_same(name: str) -> None:
    from torch_graph import TorchGraph

    model = light.load(name)
    planned = layoutopt.optimize(model, "gpu-hopper", verify=False)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    (given,) = session.get_inputs()
    feed = {given.name: np.random.default_rng(0).normal(size=given.shape).astype(np.float32)}
    runner = TorchGraph(planned.graph, "cpu")
    for want, got in zip(session.run(None, feed), runner.run(runner.inputs(feed)), strict=True):
        assert float(np.abs(want - got.numpy()).max()) <= 1e-4 * float(np.abs(want).max())
    assert runner.restrided == 0
