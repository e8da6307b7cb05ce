"""Certificates of optimised models, their command, and the size and the imports of the checker."""

import ast
import io
import json
import subprocess
import sys
import tokenize
from collections import Counter
from pathlib import Path

import onnx
import pytest
from mutations import Subject, outcomes
from networks import NETWORKS, network, optimized
from onnx import numpy_helper, parser

import layoutopt.certificate.checker
from layoutopt.certificate.checker.check import Verdict, check, parse
from layoutopt.certificate.checker.model import of_message
from layoutopt.certificate.producer import certificate_text, to_json
from layoutopt.cli import main
from layoutopt.errors import CertificateError


def certified(
    model: onnx.ModelProto, result: onnx.ModelProto, *, allow_tested: bool = False
) -> tuple[Subject, Verdict]:
    certificate = parse(certificate_text(model, result, allow_tested=allow_tested))
    verdict = check(certificate, of_message(model), of_message(result), allow_tested=allow_tested)
    return Subject(model, result, certificate), verdict


@pytest.mark.parametrize("runtime", ["any", "onnxruntime"])
@pytest.mark.parametrize("name", NETWORKS)
def test_every_op_is_proven(name: str, runtime: str) -> None:
    model = network(name)
    result = optimized(model, runtime)
    _, verdict = certified(model, result)
    assert not verdict.tested
    assert len(verdict.proven_nodes) == verdict.nodes == len(result.graph.node)


def test_a_symbolic_batch_is_proven_for_all_sizes() -> None:
    model = network(batch="N")
    _, verdict = certified(model, optimized(model, "any"))
    assert not verdict.tested
    assert len(verdict.proven_nodes) == verdict.nodes


@pytest.mark.parametrize("runtime", ["any", "onnxruntime"])
def test_mutations_are_refused_or_equal(runtime: str) -> None:
    model = network()
    subject, _ = certified(model, optimized(model, runtime))
    found = list(outcomes(subject, 30, seed=1))
    assert not [each for each in found if each.verdict == "WRONG"]
    assert Counter(each.verdict for each in found)["refused"] > 15


def test_a_weight_beyond_rounding_is_refused() -> None:
    model = network()
    result = optimized(model, "any")
    subject, _ = certified(model, result)
    tensor = next(each for each in result.graph.initializer if each.dims == [16, 8])
    array = numpy_helper.to_array(tensor).copy()
    for relative, is_refused in ((2.0**-24, False), (1e-4, True)):
        changed = onnx.ModelProto()
        changed.CopyFrom(result)
        other = array.copy()
        other[3, 4] *= 1 + relative
        next(each for each in changed.graph.initializer if each.name == tensor.name).CopyFrom(
            numpy_helper.from_array(other, tensor.name)
        )
        mutant = of_message(changed)
        record = json.loads(to_json(subject.certificate)) | {"result": mutant.digest}
        if is_refused:
            with pytest.raises(CertificateError, match="numbers of a constant differ"):
                check(parse(json.dumps(record)), of_message(model), mutant)
        else:
            check(parse(json.dumps(record)), of_message(model), mutant)


def test_a_value_that_is_only_tested_is_called_tested() -> None:
    """The proof needs a lemma that the checker does not have: 1 / (1 + exp(-x)) is Sigmoid(x)."""
    original = parser.parse_model("""<ir_version: 10, opset_import: ["" : 18]> g (float[2,3] x) => (float[2,3] z)
        <float one = {1}> { m = Neg (x) e = Exp (m) s = Add (e, one) y = Reciprocal (s) z = Tanh (y) }""")
    result = parser.parse_model("""<ir_version: 10, opset_import: ["" : 18]> g (float[2,3] x) => (float[2,3] z)
        { y = Sigmoid (x) z = Tanh (y) }""")
    with pytest.raises(CertificateError, match=r"y: .*is not proven"):
        certificate_text(original, result)
    subject, verdict = certified(original, result, allow_tested=True)
    assert list(verdict.tested) == ["y"]
    assert verdict.proven_nodes == {1}
    with pytest.raises(CertificateError, match="--allow-tested"):
        check(subject.certificate, of_message(original), of_message(result))


def test_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model, out, certificate = tmp_path / "model.onnx", tmp_path / "out.onnx", tmp_path / "out.json"
    onnx.save(network(), model)
    options = ["--target", "cpu", "--runtime", "any", "--no-measure", "--no-calibrate", "-q"]
    assert main(["optimize", str(model), "-o", str(out), "--certificate", str(certificate), *options]) == 0
    assert main(["certify", str(model), str(out), str(certificate), "--json", "-"]) == 0
    record = json.loads(capsys.readouterr().out)
    assert record["status"] == "proven" and record["proven_ops"] == record["ops"] and not record["tested"]
    assert main(["certify", str(model), str(model), str(certificate)]) == CertificateError.exit_code
    assert "its hash differs" in capsys.readouterr().err
    certificate.write_text("{}")
    assert main(["certify", str(model), str(out), str(certificate)]) == CertificateError.exit_code
    assert "is not a certificate" in capsys.readouterr().err


def test_a_certificate_that_would_be_refused_is_not_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    message = parser.parse_model("""<ir_version: 10, opset_import: ["" : 18, "local" : 1]> g (float[4] x) => (float[4] y)
        { h = local.F (x) y = Relu (h) } <domain: "local", opset_import: ["" : 18]> F (a) => (b) { b = Neg (a) }""")
    model, out, certificate = tmp_path / "model.onnx", tmp_path / "out.onnx", tmp_path / "out.json"
    onnx.save(message, model)
    options = ["--target", "cpu", "--no-measure", "--no-calibrate", "-q", "--certificate", str(certificate)]
    assert main(["optimize", str(model), "-o", str(out), *options]) == CertificateError.exit_code
    assert len(capsys.readouterr().err.splitlines()) == 1
    assert not out.exists() and not certificate.exists()


def test_tested_claims_need_an_option(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Relu and Clip(0, 1000) agree on the random numbers, but not on all."""
    paths = [tmp_path / name for name in ("model.onnx", "out.onnx", "out.json")]
    models = [
        parser.parse_model(f"""<ir_version: 10, opset_import: ["" : 18]> g (float[2,3] x) => (float[2,3] y)
            <float low = {{0}}, float high = {{1000}}> {{ {nodes} }}""")
        for nodes in ("y = Relu (x)", "y = Clip (x, low, high)")
    ]
    for path, message in zip(paths, models, strict=False):
        onnx.save(message, path)
    paths[2].write_text(certificate_text(*models, allow_tested=True))
    arguments = ["certify", *map(str, paths)]
    assert main(arguments) == CertificateError.exit_code
    assert "--allow-tested" in capsys.readouterr().err
    assert main([*arguments, "--allow-tested"]) == 0
    assert "proven except 1 tested" in capsys.readouterr().out


# The checker is small, and imports nothing of the compiler.


FOLDER = Path(layoutopt.certificate.checker.__path__[0])
_LAYOUT = (tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER)


def lines_of_code(path: Path) -> int:
    """Lines that are neither empty, nor comments, nor docstrings."""
    source = path.read_text()
    texts = {
        line
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
        for line in range(node.lineno, (node.end_lineno or node.lineno) + 1)
    }
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    lines = {line for each in tokens if each.type not in _LAYOUT for line in range(each.start[0], each.end[0] + 1)}
    return len(lines - texts)


def test_the_checker_is_small() -> None:
    assert sum(map(lines_of_code, FOLDER.rglob("*.py"))) <= 1300


def test_the_checker_runs_without_the_compiler() -> None:
    """Importing the checker imports the error classes and the version, and what layoutopt itself imports."""
    code = (
        "import sys; import layoutopt.certificate.checker.check;"
        "print(*sorted(name for name in sys.modules if name.startswith('layoutopt.')))"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    others = {name for name in found if not name.startswith("layoutopt.certificate")}
    package = {"layoutopt.runtime", "layoutopt.runtime.telemetry"}  # layoutopt disables onnxruntime's telemetry
    assert others <= {"layoutopt.errors", "layoutopt.version"} | package
