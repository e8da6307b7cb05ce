"""`layoutopt verify`."""

from pathlib import Path
from typing import Annotated

from typer import Argument, Context, Option

from layoutopt.cli.exit_codes import UsageError
from layoutopt.cli.options import assignments
from layoutopt.cli.options.assignments import INPUTS_HELP
from layoutopt.cli.options.config_file import ConfigFile, NoConfig, configured, requested_config
from layoutopt.cli.options.custom_ops import CustomOps
from layoutopt.cli.options.force import Force
from layoutopt.cli.options.json_file import JsonFile
from layoutopt.cli.options.plan import Dims
from layoutopt.cli.options.quiet import Quiet
from layoutopt.cli.options.strict import Strict
from layoutopt.cli.rendering.warnings import warn_of_repairs


def verify(
    context: Context,
    original: Annotated[Path, Argument(metavar="A", help="The reference model.")],
    rewritten: Annotated[Path, Argument(metavar="B", help="The model to compare with A.")],
    tolerance: Annotated[
        float | None,
        Option(
            "--tolerance",
            metavar="X",
            help="The largest accepted error; by default it depends on the rounding spread of A.",
        ),
    ] = None,
    rounds: Annotated[
        int, Option("--rounds", metavar="N", min=1, help="The number of rounds; each compares on two random inputs.")
    ] = 1,
    dim: Dims = None,
    inputs: Annotated[list[Path] | None, Option("--inputs", metavar="FILE.npz", help=INPUTS_HELP)] = None,
    strict: Strict = False,
    custom_ops: CustomOps = None,
    json: JsonFile = None,
    config: ConfigFile = None,
    no_config: NoConfig = False,
    force: Force = False,
    quiet: Quiet = False,
) -> None:
    """Compare the outputs of two models.

    Both are run in onnxruntime on the same random inputs, at three sizes if dimensions are symbolic. The error
    of an output is max |a - b| / max |a|. Outputs that `optimize --pin` stored in another format are converted
    back before they are compared. The exit code is 7 if the models differ, and 9 if A cannot be run.
    """
    if tolerance is not None and not tolerance >= 0:
        raise UsageError("not a tolerance", where=f"--tolerance {tolerance:g}", hint="give 0 or more")

    from layoutopt.cli.files.json_record import JsonRecord
    from layoutopt.cli.files.read_files import read_files
    from layoutopt.cli.files.reporting_written_files import reporting_written_files
    from layoutopt.cli.model_comparison import compare_models
    from layoutopt.cli.rendering.verify import print_comparison
    from layoutopt.runtime.custom_ops import kernel_libraries
    from layoutopt.sample_inputs import read_inputs

    values = {"dim": dim, "inputs": inputs, "strict": strict, "custom_ops": custom_ops}
    configuration = requested_config(config, no_config)
    options = configured(context, configuration, original, values)
    arrays = options["inputs"] or []
    given = [read_inputs(path) for path in arrays]
    record = JsonRecord(
        "verify",
        json,
        original,
        rewritten,
        reads=read_files(options, configuration),
        force=force,
    )
    dims = assignments.parse_dim_ranges(options["dim"] or [])
    with kernel_libraries(custom_ops or ()):
        comparison = compare_models(original, rewritten, tolerance, rounds, dims, given, strict=options["strict"])
    for path, repairs in comparison.repairs.items():
        warn_of_repairs(repairs, str(path))
    with reporting_written_files(record.files):
        print_comparison(comparison, record, is_quiet=quiet)
    comparison.raise_for_status()
