"""The function `export`, which exports a PyTorch module to ONNX and optimises the result.

    result = layoutopt.export(module, (example,), target="gpu-hopper")
    result.save("out.onnx")

The export is that of `torch.onnx.export`, which traces the module with the example arguments. PyTorch is installed by the extra
`layoutopt[torch]`, and imported when `export` is called.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from layoutopt.api import optimize
from layoutopt.driver.job import Target
from layoutopt.driver.result import Result
from layoutopt.errors import ArgumentError, ModelError
from layoutopt.registry import library


def export(
    module: Any,
    args: Sequence[Any] = (),
    target: Target = "cpu",
    *,
    kwargs: Mapping[str, Any] | None = None,
    export_options: Mapping[str, Any] | None = None,
    **options: Any,
) -> Result:
    """Export a PyTorch module to ONNX, choose a memory format for every tensor, and rewrite the model.

    Args:
        module: a `torch.nn.Module` in evaluation mode (`module.eval()`), unless `mode="training"` is given.
        args: the positional arguments to trace the module with, tensors of the shapes of real inputs.
        target: as in `optimize`.
        kwargs: the keyword arguments to trace the module with.
        export_options: options of `torch.onnx.export`, such as `dynamic_shapes`, `input_names` and `opset_version`.
        options: options of `optimize`, such as `runtime`, `dims` and `mode`.

    Raises:
        ArgumentError: the module or its mode is wrong.
        ModelError: PyTorch cannot export the module.
        LayoutoptError: PyTorch or its exporter is not installed; and every error of `optimize`.
    """
    torch, _ = (library(name, "torch", "export") for name in ("torch", "onnxscript"))
    if not isinstance(module, torch.nn.Module):
        raise ArgumentError(
            f"not a torch.nn.Module but {type(module).__name__}", where="module", hint="layoutopt.optimize takes ONNX"
        )
    if module.training and options.get("mode", "inference") == "inference":
        raise ArgumentError("the module is in training mode", where="module", hint="call module.eval() before export")
    if not (export_options or {}).get("dynamo", True):
        raise ArgumentError(
            "torch.onnx.export(dynamo=False) returns no model", where="export_options", hint="leave out dynamo"
        )
    return optimize(_exported(torch, module, tuple(args), dict(kwargs or {}), export_options or {}), target, **options)


def _exported(
    torch: Any, module: Any, args: tuple[Any, ...], kwargs: dict[str, Any], options: Mapping[str, Any]
) -> Any:
    """The module as an ONNX message.

    Raises:
        ModelError: the exporter raised an error; the first line of its cause is the fault.
    """
    try:
        program = torch.onnx.export(module, args, kwargs=kwargs, **{"dynamo": True, "verbose": False, **options})
    except Exception as error:  # the exporter passes on whatever the module raises
        hint = "torch.onnx.export(module, args, dynamo=True, report=True) writes the details"
        fault = f"PyTorch cannot export it: {_first_line(_cause(error))}"
        raise ModelError(fault, where=type(module).__name__, hint=hint) from error
    return program.model_proto


def _cause(error: BaseException) -> BaseException:
    while error.__cause__ is not None:
        error = error.__cause__
    return error


def _first_line(error: BaseException) -> str:
    return next((line for line in str(error).splitlines() if line.strip()), type(error).__name__)


__all__ = ["export"]
