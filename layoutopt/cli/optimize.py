"""`layoutopt optimize`."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

from typer import Argument, Context, Exit, Option

from layoutopt.cli.exit_codes import UsageError
from layoutopt.cli.optimization.settings import ModelSettings
from layoutopt.cli.options.allow_tested import AllowTested
from layoutopt.cli.options.assignments import INPUTS_HELP
from layoutopt.cli.options.clusters import complete_cluster
from layoutopt.cli.options.config_file import (
    LOADS_CODE,
    NAMES_OUTPUT,
    ConfigFile,
    NoConfig,
    configured,
    requested_config,
)
from layoutopt.cli.options.custom_ops import CustomOps
from layoutopt.cli.options.force import Force
from layoutopt.cli.options.pages import PAGE_HELP
from layoutopt.cli.options.plan import Dialect, Dims, Pins, Runtime
from layoutopt.cli.options.quiet import Quiet
from layoutopt.cli.options.strict import Strict
from layoutopt.cli.options.target_names import complete_target


class Mode(StrEnum):
    """The use of the optimised model."""

    INFERENCE = "inference"
    TRAINING = "training"


class Sessions(StrEnum):
    """The preference for session creation or runs."""

    BALANCED = "balanced"
    FAST = "fast"


_SESSIONS = "fast: sessions of onnxruntime are created faster, runs take longer; best with --external-data."
_MODELS = "ONNX files; folders, which are searched for *.onnx; patterns such as 'models/**/*.onnx'; `-` for stdin."
_OUTPUT = (
    "The file to write, or the folder for the results of several models; `-` for stdout. By default MODEL.opt.onnx next to "
    "each MODEL."
)
_JSON = "Print the report as JSON, or write it to FILE.json; one line per model if there are several."
_JOBS = (
    "Worker processes for several models; 0 for none. By default as many as memory and CPU cores permit, or one if times are "
    "measured."
)
_CLUSTER = (
    "Optimise several models in a cluster: dask://HOST:PORT, ray://HOST:PORT, ray://auto, dask://local or ray://local."
)
_CACHE = "Keep the outcomes of several models in this folder; a model whose outcome is there is not optimised again."
_CERTIFICATE = "Write the proof that OUT computes what MODEL computes, for `layoutopt certify`."
_TARGET = "The hardware: a name from `layoutopt targets`, or a file T.toml."
_DUMP = "Print the graph before:PASS, after:PASS or after all passes, on stderr; or to files: all=FOLDER."


def optimize(
    context: Context,
    models: Annotated[list[Path], Argument(metavar="MODEL", help=_MODELS)],
    output: Annotated[str | None, Option("--output", "-o", metavar="OUT", help=_OUTPUT), NAMES_OUTPUT] = None,
    target: Annotated[
        str,
        Option("--target", "-t", metavar="T", help=_TARGET, autocompletion=complete_target),
    ] = "cpu",
    runtime: Runtime = None,
    dialect: Dialect = None,
    mode: Annotated[
        Mode, Option("--mode", help="In training mode, weights and their layout conversions stay in the graph.")
    ] = Mode.INFERENCE,
    pin: Pins = None,
    dim: Dims = None,
    inputs: Annotated[list[Path] | None, Option("--inputs", metavar="FILE.npz", help=INPUTS_HELP)] = None,
    verify: Annotated[
        bool, Option("--verify/--no-verify", help="Compare the result with the original on random inputs.")
    ] = True,
    allow_unverified: Annotated[
        bool,
        Option(
            "--allow-unverified",
            help="Write the result even if it cannot be compared with the original on this machine.",
        ),
    ] = False,
    measure: Annotated[
        bool, Option("--measure/--no-measure", help="Run both models in turns, and keep MODEL if OUT is slower.")
    ] = True,
    threads: Annotated[int, Option("--threads", metavar="N", help="Threads of the sessions that are measured.")] = 1,
    calibrate: Annotated[
        bool,
        Option("--calibrate/--no-calibrate", help="Plan with kernels timed on this machine, for up to 5 s."),
    ] = True,
    profile: Annotated[
        Path | None,
        Option("--profile", metavar="FILE", help="Plan with these kernel times, and time none."),
    ] = None,
    time_limit: Annotated[
        float | None,
        Option("--time-limit", metavar="S", help="Seconds for the planner; then the best plan found so far is used."),
    ] = None,
    max_growth: Annotated[
        float | None,
        Option("--max-growth", metavar="X", help="The size limit of all constants, relative to MODEL; by default 2.2."),
    ] = None,
    portable: Annotated[
        bool,
        Option(
            "--portable", help="Write a file for all machines: native kernels where they fit, else standard operators."
        ),
    ] = False,
    sessions: Annotated[Sessions, Option("--sessions", help=_SESSIONS)] = Sessions.BALANCED,
    least: Annotated[
        bool, Option("--least", help="Compute the minimum number of layout conversions and transposes over all plans.")
    ] = False,
    jobs: Annotated[int | None, Option("--jobs", "-j", metavar="N", envvar="LAYOUTOPT_JOBS", help=_JOBS)] = None,
    cluster: Annotated[
        str | None, Option("--cluster", metavar="URL", help=_CLUSTER, autocompletion=complete_cluster), LOADS_CODE
    ] = None,
    cache: Annotated[Path | None, Option("--cache", metavar="FOLDER", help=_CACHE), NAMES_OUTPUT] = None,
    json: Annotated[Path | None, Option("--json", "--report", metavar="[FILE.json]", help=_JSON), NAMES_OUTPUT] = None,
    html: Annotated[Path | None, Option("--html", metavar="FILE", help=PAGE_HELP), NAMES_OUTPUT] = None,
    certificate: Annotated[
        Path | None, Option("--certificate", metavar="FILE", help=_CERTIFICATE), NAMES_OUTPUT
    ] = None,
    allow_tested: AllowTested = False,
    strict: Strict = False,
    custom_ops: CustomOps = None,
    external_data: Annotated[
        str | None,
        Option("--external-data", metavar="NAME", help="Store weights in this file next to OUT."),
        NAMES_OUTPUT,
    ] = None,
    dump_ir: Annotated[list[str] | None, Option("--dump-ir", metavar="WHAT", help=_DUMP), NAMES_OUTPUT] = None,
    dry_run: Annotated[bool, Option("--dry-run", help="Plan and verify, but write no model.")] = False,
    force: Force = False,
    config: ConfigFile = None,
    no_config: NoConfig = False,
    quiet: Quiet = False,
    verbose: Annotated[
        bool,
        Option("--verbose", "-v", help="Print the time of each pass and notes too; of several models, all summaries."),
    ] = False,
) -> None:
    """Rewrite models for a target. `layoutopt model.onnx` is short for `layoutopt optimize model.onnx`.

    Both models are run in onnxruntime. A result whose outputs differ from those of the original is not written, nor is
    a result that cannot be compared. If no plan is estimated to be faster, OUT is a copy of MODEL. Of several models, a
    failure does not stop the others; the exit code is that of the first failure.
    """
    settings = ModelSettings(
        target=target,
        runtime=runtime,
        dialect=dialect,
        mode=mode.value,
        pin=pin or (),
        dim=dim or (),
        inputs=inputs or (),
        verify=verify,
        allow_unverified=allow_unverified,
        measure=measure,
        threads=threads,
        calibrate=calibrate,
        profile=profile,
        time_limit=time_limit,
        max_growth=max_growth,
        portable=portable,
        sessions=sessions.value,
        least=least,
        strict=strict,
        custom_ops=custom_ops or (),
        external_data=external_data,
    )
    settings.check()
    if jobs is not None and jobs < 0:
        raise UsageError("not a number of processes", where=f"--jobs {jobs}", hint="give 0 or more")
    configuration = requested_config(config, no_config)

    from layoutopt.cli.optimization.batch_settings import BatchSettings
    from layoutopt.cli.optimization.command import run_optimize
    from layoutopt.cli.optimization.one_model import Request

    def settings_of(model: Path) -> ModelSettings:
        return settings.updated(configured(context, configuration, model, settings.values()))

    batch = BatchSettings(**configured(context, configuration, Path(), {"jobs": jobs}), cluster=cluster, cache=cache)
    reads = () if configuration is None else (configuration.path,)
    request = Request(json, html, certificate, allow_tested, dump_ir or (), dry_run, force, quiet, verbose, reads)
    has_traceback = context.obj.traceback
    if code := run_optimize(models, output, settings, settings_of, request, batch, has_traceback=has_traceback):
        raise Exit(code)
