"""Groups of commands: silent on a closed pipe, and those that show something themselves."""

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import click

from nodeward.cli import exits


@contextmanager
def _piped() -> Iterator[None]:
    """Ends by SIGPIPE and without a word once nobody reads standard output any more, as other programs do."""
    try:
        try:
            yield
        finally:
            if sys.stdout is not None:
                sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGPIPE)
        sys.exit(exits.CLOSED_PIPE)  # where whoever started us blocks the signal


class Group(click.Group):
    """A group of commands that is silent on a closed pipe."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:  # prints --help and --version
        with _piped():
            return super().parse_args(ctx, args)

    def invoke(self, ctx: click.Context) -> object:
        with _piped():
            return super().invoke(ctx)


class Own(click.Argument):
    """An argument of a command with sub-commands, which is no part of how these are called."""

    def get_usage_pieces(self, ctx: click.Context) -> list[str]:
        return super().get_usage_pieces(ctx) if self in ctx.command.params else []


class Shows(click.Group):
    """A command with sub-commands: `nodeward vms`, `nodeward vms shop/web` and `nodeward vms volume list`. What is no
    sub-command's name is its own argument."""

    allow_interspersed_args = True  # its own options also stand after its argument
    allow_extra_args = False

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **{"no_args_is_help": False, **more})

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
    ) -> click.Context:
        """The sub-command's context where its name comes first."""
        if args and args[0] in self.commands:
            below = self.commands[args[0]]
            return below.make_context(f"{info_name} {args[0]}", args[1:], parent=parent, **extra)
        return super().make_context(info_name, args, parent=parent, **extra)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        takes_none = not any(isinstance(param, click.Argument) for param in self.params)
        if args and takes_none and not args[0].startswith("-") and not ctx.resilient_parsing:
            raise click.NoSuchCommand(args[0], possibilities=self.commands, ctx=ctx)
        if late := [word for word in args if word in self.commands]:
            raise click.UsageError(f"`{late[0]}` comes first: {ctx.command_path} {late[0]} ...", ctx)
        return click.Command.parse_args(self, ctx, args)

    def invoke(self, ctx: click.Context) -> object:
        return click.Command.invoke(ctx.command, ctx) if ctx.command is self else ctx.command.invoke(ctx)

    def collect_usage_pieces(self, ctx: click.Context) -> list[str]:
        return [*click.Command.collect_usage_pieces(self, ctx), "| COMMAND ..."]
