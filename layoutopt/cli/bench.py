"""`layoutopt bench`."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

from typer import Argument, Context, Option

from layoutopt.cli.exit_codes import UsageError
from layoutopt.cli.options import assignments
from layoutopt.cli.options.config_file import ConfigFile, NoConfig, configured, requested_config
from layoutopt.cli.options.custom_ops import CustomOps
from layoutopt.cli.options.force import Force
from layoutopt.cli.options.json_file import JsonFile
from layoutopt.cli.options.quiet import Quiet


class Runtime(StrEnum):
    """The runtimes that `bench` can run models in."""

    ONNXRUNTIME = "onnxruntime"
    OPENVINO = "openvino"


_MODELS = "ONNX files, labelled A, B, ... in the order given; A is the baseline."
_RUNTIME = "onnxruntime or openvino. Can be repeated: every model is then run in each runtime that supports it."
_INPUTS = "Input arrays by name, written by numpy.savez. Inputs that the file does not contain are random."
_DIM = "The size of a symbolic dimension, or of INPUT[AXIS]. Can be repeated."


def bench(
    context: Context,
    models: Annotated[list[Path], Argument(metavar="MODEL", help=_MODELS)],
    threads: Annotated[
        int, Option("--threads", metavar="N", min=1, help="Threads per session; 1 also pins the process to one CPU.")
    ] = 1,
    runs: Annotated[
        int | None, Option("--runs", metavar="N", min=2, help="The number of rounds; by default as many as fit.")
    ] = None,
    seconds: Annotated[
        float, Option("--seconds", metavar="S", help="Duration of the timed rounds; there are at least 12 rounds.")
    ] = 10.0,
    warm_up: Annotated[
        int, Option("--warm-up", metavar="N", min=1, help="Untimed rounds after new sessions are created.")
    ] = 2,
    dim: Annotated[list[str] | None, Option("--dim", metavar="NAME=SIZE", help=_DIM)] = None,
    inputs: Annotated[Path | None, Option("--inputs", metavar="FILE.npz", help=_INPUTS)] = None,
    seed: Annotated[int, Option("--seed", metavar="N", min=0, help="The seed of the random inputs.")] = 0,
    runtime: Annotated[list[Runtime] | None, Option("--runtime", metavar="R", help=_RUNTIME)] = None,
    memory: Annotated[
        bool, Option("--memory", help="Measure the anonymous memory of one and of four sessions (Linux).")
    ] = False,
    explain: Annotated[
        bool, Option("--explain", help="Time every kernel alone, and compare estimated with measured kernel times.")
    ] = False,
    profile: Annotated[bool, Option("--profile", help="Print the time per op type, side by side.")] = False,
    json: JsonFile = None,
    config: ConfigFile = None,
    no_config: NoConfig = False,
    custom_ops: CustomOps = None,
    force: Force = False,
    quiet: Quiet = False,
) -> None:
    """Time models against each other, in pairs.

    All models run in this process, in turns (A B, B A, A B, ...), on the same inputs, in each runtime with
    default session options. A speed-up is A's time divided by B's, as a mean over twelve blocks of rounds, each with new
    sessions. It is printed with its confidence interval and the quartiles of the rounds. Also measured: session creation,
    peak memory, and the share of kernel time that only moves data, with Transpose and Reorder nodes listed separately.
    """
    if not 0 < seconds < float("inf"):
        raise UsageError("not a time", where=f"--seconds {seconds:g}", hint="give a finite number above 0")
    values = {"threads": threads, "dim": dim, "custom_ops": custom_ops}
    configuration = requested_config(config, no_config)
    options = configured(context, configuration, models[0], values)
    dims = assignments.parse_dim_sizes(dim or assignments.without_ranges(options["dim"] or []))

    from layoutopt.bench.benchmark import bench as run_benchmark
    from layoutopt.cli.files.json_record import JsonRecord
    from layoutopt.cli.files.read_files import read_files
    from layoutopt.cli.files.reporting_written_files import reporting_written_files
    from layoutopt.cli.rendering.bench import print_bench
    from layoutopt.cli.rendering.progress import ProgressLine
    from layoutopt.errors import DimensionError, InputError
    from layoutopt.runtime.custom_ops import kernel_libraries
    from layoutopt.sample_inputs import read_inputs

    given = read_inputs(inputs) if inputs is not None else {}
    reads = read_files({**options, "inputs": inputs}, configuration)
    record = JsonRecord("bench", json, *models, reads=reads, force=force)
    with kernel_libraries(custom_ops or ()), ProgressLine(is_silent=quiet) as progress:
        try:
            report = run_benchmark(
                models,
                threads=options["threads"],
                runs=runs,
                seconds=seconds,
                warm_up=warm_up,
                seed=seed,
                dims=dims,
                inputs=given,
                runtimes=list(dict.fromkeys(each.value for each in runtime or [Runtime.ONNXRUNTIME])),
                memory=memory,
                explained=explain,
                progress=progress,
            )
        except (DimensionError, InputError) as error:
            option = "--dim" if isinstance(error, DimensionError) else f"--inputs {inputs}:"
            raise UsageError(error.what, where=f"{option} {error.where}", hint=error.hint) from error
    record.write(report)
    if not record.is_printed and not quiet:
        with reporting_written_files(record.files):
            print_bench(report, profile)
