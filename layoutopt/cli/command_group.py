"""The group of all commands, in which a model as the first argument implies the command `optimize`."""

from typing import Any

from typer.core import TyperGroup

from layoutopt.cli.arguments import DEFAULT_COMMAND, is_model


class CommandGroup(TyperGroup):
    """Resolves `layoutopt model.onnx ...` to `optimize`, also when the shell completes such a line."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """The name, the command and the remaining arguments."""
        is_implicit = bool(args) and args[0] not in self.commands and is_model(args[0])
        return super().resolve_command(ctx, [DEFAULT_COMMAND, *args] if is_implicit else args)
