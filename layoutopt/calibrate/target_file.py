"""The file of a calibrated target: its differences from the built-in target that it inherits."""

import json
from typing import Any

from layoutopt.cost_models import TargetSpec
from layoutopt.cost_models.spec import KernelSpec


def target_file_text(spec: TargetSpec, base: TargetSpec, description: str) -> str:
    """The TOML of `spec`, which inherits from `base`.

    Args:
        spec: the calibrated target.
        base: the built-in target that the file inherits.
        description: one line of text.
    """
    lines = [
        f"inherits = {json.dumps(base.name)}",
        f"dialect = {json.dumps(spec.dialect)}",
        f"description = {json.dumps(description, ensure_ascii=False)}",
    ]
    for title, new, old in (("launch", spec.launch, base.launch), ("memory", spec.memory, base.memory)):
        changed = {
            name: getattr(new, name) for name in type(new).model_fields if getattr(new, name) != getattr(old, name)
        }
        lines += ["", f"[{title}]", *_numbers({name: each for name, each in changed.items() if each is not None})]
    rates = {name: rate for name, rate in spec.rates["vector"].items() if rate != base.rates["vector"].get(name)}
    lines += ["", "[rates.vector]", *_numbers(rates)]
    for kernel in spec.kernel:
        if kernel not in base.kernel:
            lines += ["", "[[kernel]]", *_row(kernel)]
    return "\n".join(lines) + "\n"


def _row(kernel: KernelSpec) -> list[str]:
    dumped = kernel.model_dump(mode="json", exclude_none=True, exclude_defaults=True)
    keys = {name: dumped.pop(name) for name in list(dumped) if not isinstance(dumped[name], dict) or name == "formats"}
    return [f"{name} = {_value(value)}" for name, value in keys.items()] + _numbers(
        {name: getattr(kernel, name) for name in dumped}
    )


def _numbers(numbers: dict[str, Any]) -> list[str]:
    return [f"{name} = {{ value = {each.value!r}, source = {_value(each.source)} }}" for name, each in numbers.items()]


def _value(value: Any) -> str:
    """A value in TOML, which includes JSON's strings, numbers, booleans and lists."""
    if isinstance(value, dict):
        return f"{{ {', '.join(f'{key} = {_value(each)}' for key, each in value.items())} }}"
    if isinstance(value, list | tuple):
        return _value(value[0]) if len(value) == 1 else f"[{', '.join(map(_value, value))}]"
    return json.dumps(value, ensure_ascii=False)
