"""The result of `optimize`: the model, the plan, the report and the planned graph."""

from dataclasses import dataclass
from html import escape
from os import PathLike
from pathlib import Path
from typing import Any

import onnx
import onnx_ir

from layoutopt import onnx_io
from layoutopt.errors import ArgumentError
from layoutopt.files import is_same_file
from layoutopt.ir.graph import Graph
from layoutopt.onnx_io.writer import WrittenFiles
from layoutopt.planner import Plan
from layoutopt.report.facts import summary_text
from layoutopt.report.schema import Report


@dataclass(frozen=True, slots=True)
class Result:
    """The result of `optimize`.

    Attributes:
        model: the optimised model; the original if it stays unchanged.
        plan: the plan; None if the model has been optimised with the same options before.
        report: the plan, its costs, the verification and the notes of passes, as data.
        graph: the planned graph, with formats and casts, before it was lowered.
        source: the file or message with the content of `model`, if the model stays unchanged.
        origin: the file that the original was read from; None if it was not a file.
        reads: the other files that the call has read, which `save` never replaces.
    """

    model: onnx_ir.Model
    plan: Plan | None
    report: Report
    graph: Graph
    source: str | onnx.ModelProto | None = None
    origin: str | None = None
    reads: tuple[Path, ...] = ()

    def __repr__(self) -> str:
        report = self.report
        outcome = "rewritten" if report.changed else f"unchanged: {report.reason}"
        checked = f"verification {report.verification.status}"
        return f"Result({report.model!r} for {report.target}, {outcome}, {len(report.ops)} ops, {checked})"

    def summary(self) -> str:
        """The key numbers of the report as lines of text: data movement, estimated and measured time, verification."""
        return summary_text(self.report)

    def _repr_html_(self) -> str:
        """The summary as preformatted text, for notebooks."""
        return f"<pre>{escape(summary_text(self.report))}</pre>"

    def __reduce__(self) -> tuple[Any, ...]:
        """The state for pickle and copy: the model is one message that includes external data."""
        state = (self.plan, self.report, self.graph, self.source, self.origin, self.reads)
        return _restored, (onnx_io.to_bytes(self.model), *state)

    @property
    def proto(self) -> onnx.ModelProto:
        """The model as an onnx message; a copy of the message that `optimize` received if the model stays unchanged."""
        message = onnx.ModelProto()
        if isinstance(self.source, onnx.ModelProto):
            message.CopyFrom(self.source)
        else:
            message.ParseFromString(onnx_io.to_bytes(self.model))
        return message

    def certificate(
        self,
        original: str | PathLike[str] | bytes | onnx.ModelProto | None = None,
        *,
        allow_tested: bool = False,
    ) -> str:
        """The proof that the model computes what the original computes, as JSON; `layoutopt certify` accepts it.

        Args:
            original: the original; by default the file that was optimised.
            allow_tested: whether values without a proof may be compared on random inputs.

        Raises:
            ArgumentError: the original was no file, and none is given.
            CertificateError: a value has no proof, or a model has a part that the checker refuses.
        """
        from layoutopt.certificate.producer import certificate_text

        if original is None and self.origin is None:
            raise ArgumentError("the original was no file", hint="give the original: result.certificate(original)")
        is_copied = not onnx_io.has_external_data(self.model)  # by `save`, byte for byte, if there is a source
        written = self.source if isinstance(self.source, str) and is_copied else self.proto
        source = str(self.origin) if original is None else original
        return certificate_text(source, written, allow_tested=allow_tested)

    def save(self, path: str | PathLike[str], *, external_data: str | None = None, force: bool = False) -> WrittenFiles:
        """Write the model atomically; an unchanged model is copied byte for byte.

        Args:
            path: the file; it may be the one that the original was read from.
            external_data: the name of a file next to it for the weights; where the existing model uses that file, other
                weights get a name with a hash.
            force: replace an existing file that is no result of the same file, and external data of other models; but no file
                that the call has read.

        Returns:
            The files that were written, and external data that no model uses any more.

        Raises:
            OutputError: the file cannot be written, or must not replace an existing file; no file is changed then.
        """
        if self.source is None or external_data is not None:
            return onnx_io.write(self.model, path, external_data, source=self.origin, reads=self.reads, force=force)
        if isinstance(self.source, str) and is_same_file(Path(self.source), Path(path)):
            return WrittenFiles(Path(path))
        if onnx_io.has_external_data(self.model):
            return onnx_io.write(self.model, path, source=self.origin, reads=self.reads, force=force)
        return onnx_io.copy(self.source, path, source=self.origin, reads=self.reads, force=force)


def _restored(model: bytes, *state: Any) -> Result:
    """The result with the state that pickle and copy keep."""
    return Result(onnx_io.from_message(onnx_io.parse_message(model)), *state)
