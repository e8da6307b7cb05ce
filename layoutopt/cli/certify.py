"""`layoutopt certify`."""

from pathlib import Path
from typing import Annotated

from typer import Argument

from layoutopt.cli.options.allow_tested import AllowTested
from layoutopt.cli.options.force import Force
from layoutopt.cli.options.json_file import JsonFile
from layoutopt.cli.options.quiet import Quiet
from layoutopt.errors import CertificateError


def certify(
    original: Annotated[Path, Argument(metavar="A", help="The original.")],
    result: Annotated[Path, Argument(metavar="B", help="The result of `optimize`.")],
    certificate: Annotated[Path, Argument(metavar="C", help="The file of `optimize --certificate`.")],
    allow_tested: AllowTested = False,
    json: JsonFile = None,
    force: Force = False,
    quiet: Quiet = False,
) -> None:
    """Check the certificate C: a proof that B computes what A computes.

    The checker uses no planner and no pass. It proves every claim of C from the nodes of both models, and recomputes
    folded constants. Claims without a proof are refused; with --allow-tested they are compared on random inputs. The
    exit code is 15 if C is refused.
    """
    from layoutopt.certificate.checker.check import check, parse
    from layoutopt.certificate.checker.model import read
    from layoutopt.certificate.testing import measure
    from layoutopt.cli.files.json_record import JsonRecord
    from layoutopt.cli.files.reporting_written_files import reporting_written_files
    from layoutopt.cli.rendering.certify import print_verdict

    record = JsonRecord("certify", json, original, result, certificate, kind="a model or the certificate", force=force)
    first, second = read(original), read(result)
    verdict = check(parse(_text(certificate), str(certificate)), first, second, allow_tested=allow_tested)
    differences = measure(first, second, [claim for claim, _ in verdict.tested.values()])
    with reporting_written_files(record.files):
        print_verdict(verdict, differences, original, result, record, is_quiet=quiet)


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, ValueError) as fault:
        reason = getattr(fault, "strerror", None) or "it is no text"
        raise CertificateError(f"cannot be read: {reason}", where=str(path)) from fault
