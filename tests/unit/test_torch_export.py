"""`layoutopt.export`: a PyTorch module becomes an optimised model with its outputs."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnxruntime
import pytest

import layoutopt
from layoutopt.errors import ArgumentError, ModelError

torch = pytest.importorskip("torch")
pytest.importorskip("onnxscript")


def network() -> Any:
    torch.manual_seed(0)
    return torch.nn.Sequential(
        torch.nn.Conv2d(3, 32, 3, padding=1),
        torch.nn.BatchNorm2d(32),
        torch.nn.ReLU(),
        torch.nn.Conv2d(32, 17, 3),
        torch.nn.AdaptiveAvgPool2d(1),
        torch.nn.Flatten(),
    ).eval()


def test_the_result_computes_what_the_module_computes() -> None:
    module, x = network(), torch.randn(1, 3, 16, 16)
    result = layoutopt.export(module, (x,), "cpu", measure=False, calibrate=False)
    assert result.report.verification.status == "passed"
    session = onnxruntime.InferenceSession(result.proto.SerializeToString(), providers=["CPUExecutionProvider"])
    (output,) = session.run(None, {session.get_inputs()[0].name: x.numpy()})
    np.testing.assert_allclose(output, module(x).detach().numpy(), rtol=1e-4, atol=1e-5)


def test_options_of_the_exporter_are_passed_on() -> None:
    shapes = ({0: torch.export.Dim("batch")},)
    options: Mapping[str, Any] = {"dynamic_shapes": shapes, "input_names": ["image"]}
    result = layoutopt.export(network(), (torch.randn(2, 3, 8, 8),), "gpu-hopper", export_options=options, verify=False)
    assert [each.name for each in result.report.dims] == ["batch"]
    assert [each.name for each in result.model.graph.inputs] == ["image"]


@pytest.mark.parametrize(
    ("module", "x", "error", "words"),
    [
        (network().train(), torch.randn(1, 3, 8, 8), ArgumentError, r"training mode; call module\.eval\(\)"),
        (network(), torch.randn(1, 5, 8, 8), ModelError, "Sequential: PyTorch cannot export it: .*5 channels"),
    ],
)
def test_a_wrong_module_is_one_line(module: Any, x: Any, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words) as caught:
        layoutopt.export(module, (x,))
    assert "\n" not in str(caught.value)


def test_a_module_in_training_mode_is_exported_for_training() -> None:
    result = layoutopt.export(torch.nn.Linear(4, 4).train(), (torch.randn(1, 4),), mode="training", verify=False)
    assert result.report.mode == "training"
