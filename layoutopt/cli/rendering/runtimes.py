"""The output of `runtimes`."""

import json

from layoutopt.cli.output_files import JsonRecord
from layoutopt.cli.rendering.terminal import footnote, indented, key_values, show, styled_line, text
from layoutopt.cost_models import RuntimeSpec, find_runtime, load_target, runtime_names, runtime_of, target_names

_KERNELS = {"target": "all kernels of the target", "standard": "operands in canonical formats"}


def print_runtimes(record: JsonRecord) -> None:
    """Print the runtimes, each with the targets whose default it is."""
    specs = [find_runtime(name) for name in runtime_names()]
    records = [json.loads(spec.model_dump_json()) | {"default_of": _targets(spec)} for spec in specs]
    record.write({"runtimes": records})
    if record.is_printed:
        return
    for spec in specs:
        default = f"default of {', '.join(found)}" if (found := _targets(spec)) else ""
        show(styled_line((spec.name, "bold"), "  ", (default, "dim")), indented(text(spec.description)))
        rows = [
            ("runs in", text(spec.runs_in)),
            ("dialects", text(", ".join(spec.dialects))),
            ("kernels", text(_KERNELS[spec.kernels])),
        ]
        for absorbed in spec.absorbs:
            what = f"Transposes of the last two axes before {', '.join(absorbed.ops)} ({', '.join(absorbed.dtypes)})"
            rows.append(("absorbs", styled_line(what, (f"  {absorbed.source}", "dim"))))
        for epilogue in spec.fuses:
            with_what = " with constants" if epilogue.with_constants else ""
            what = f"{', '.join(epilogue.ops or ('element-wise ops',))}{with_what} behind {', '.join(epilogue.family)}"
            rows.append(("fuses", styled_line(what, (f"  {epilogue.source}", "dim"))))
        show(indented(key_values(*rows)))
    footnote("Choose a runtime with optimize --runtime.")


def _targets(spec: RuntimeSpec) -> list[str]:
    return [name for name in target_names() if runtime_of(load_target(name).dialect).name == spec.name]
