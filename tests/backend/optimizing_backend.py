"""layoutopt as a backend of ONNX: models are optimised, then run in stock onnxruntime.

    import onnx.backend.test
    from optimizing_backend import Backend

    class Hopper(Backend):
        target = "gpu-hopper"

    suite = onnx.backend.test.BackendTest(Hopper, __name__)

A case of ONNX's test suite must pass if and only if it passes in onnxruntime without layoutopt.
"""

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
import onnx
import onnx.backend.base
import onnx.defs
from onnx import helper

from layoutopt.api import optimize
from layoutopt.cost import CostModel
from layoutopt.runtime.session import Session

_STANDARD_OPSET = 18
"""The version of ai.onnx in models of one node of which onnx has no schema."""


class Prepared(onnx.backend.base.BackendRep):
    """A model in onnxruntime.

    Args:
        model: the serialised model.
    """

    def __init__(self, model: bytes) -> None:
        self._session = Session(model, threads=1)

    def run(self, inputs: Any, **kwargs: Any) -> tuple[Any, ...]:
        """Run the model, and return all outputs in order.

        Args:
            inputs: arrays in the order of the model's inputs, or by name; initializers are not inputs. A single array is
                accepted for one input.
            kwargs: options of other backends, which are ignored.
        """
        names = [each.name for each in self._session.get_inputs()]
        if not isinstance(inputs, dict):
            inputs = dict(zip(names, inputs if isinstance(inputs, list | tuple) else [inputs], strict=False))
        return tuple(self._session.run(None, inputs))


class Backend(onnx.backend.base.Backend):
    """Optimises a model with layoutopt, and runs it in onnxruntime. Subclasses set target and dialect.

    Attributes:
        target: as in `layoutopt.optimize`.
        dialect: as in `layoutopt.optimize`; None for the default of the target.
        verify: whether to compare the optimised model with the original on random inputs as well.
    """

    target: ClassVar[str | CostModel] = "cpu"
    dialect: ClassVar[str | None] = None
    verify: ClassVar[bool] = True

    @classmethod
    def supports_device(cls, device: str) -> bool:
        """Whether models run on a device; only `CPU`, for every target."""
        return device.split(":")[0] == "CPU"

    @classmethod
    def prepare(cls, model: onnx.ModelProto, device: str = "CPU", **kwargs: Any) -> Prepared:
        """Optimise and load a model.

        Args:
            model: the model; it is not modified.
            device: ignored; models run on the CPU.
            kwargs: `target`, `dialect` and `verify` override those of the class; others, which the test suite passes, are
                ignored.

        Raises:
            LayoutoptError: an error of `layoutopt.optimize`.
        """
        del device
        options = {name: kwargs.get(name, getattr(cls, name)) for name in ("target", "dialect", "verify")}
        # The caller provides inputs, so a model that does not run on random inputs is not an error here.
        return Prepared(optimize(model, **options, allow_unverified=True).proto.SerializeToString())

    @classmethod
    def run_node(
        cls,
        node: onnx.NodeProto,
        inputs: Any,
        device: str = "CPU",
        outputs_info: Sequence[tuple[np.dtype[Any], tuple[int, ...]]] | None = None,
        **kwargs: Any,
    ) -> tuple[Any, ...]:
        """Run a model of one node.

        Args:
            node: the node.
            inputs: an array for every named input.
            device: ignored; models run on the CPU.
            outputs_info: ignored; types of outputs are inferred.
            kwargs: `opset_version` of the node's domain, by default the version of the latest change of the operator, or 1 in a
                domain of which onnx has no schemas; and those of `prepare`.

        Raises:
            LayoutoptError: an error of `layoutopt.optimize`.
        """
        del outputs_info
        arrays = dict(zip(filter(None, node.input), map(np.asarray, inputs), strict=True))
        graph = helper.make_graph(
            [node],
            "node",
            [helper.make_tensor_value_info(name, _element(array), array.shape) for name, array in arrays.items()],
            [onnx.ValueInfoProto(name=name) for name in node.output if name],
        )
        opsets = _opsets(node, kwargs.get("opset_version"))
        ir_version = helper.find_min_ir_version_for(opsets, ignore_unknown=True)
        model = helper.make_model(graph, opset_imports=opsets, ir_version=ir_version)
        return cls.prepare(model, device, **kwargs).run(arrays)


def _opsets(node: onnx.NodeProto, version: int | None) -> list[onnx.OperatorSetIdProto]:
    """The operator set of a node, and the standard one if the node has another domain.

    Args:
        node: the node.
        version: the version of its operator set; None for that of the latest change of the operator.
    """
    if onnx.defs.has(node.op_type, node.domain):
        return [
            helper.make_opsetid(node.domain, version or onnx.defs.get_schema(node.op_type, node.domain).since_version)
        ]
    if node.domain:
        return [helper.make_opsetid("", _STANDARD_OPSET), helper.make_opsetid(node.domain, version or 1)]
    return [helper.make_opsetid("", version or _STANDARD_OPSET)]


def _element(array: np.ndarray[Any, Any]) -> int:
    return int(helper.np_dtype_to_tensor_dtype(array.dtype))
