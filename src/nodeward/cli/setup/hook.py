"""`nodeward setup hook`: prints the configuration that adds the OCI hook to containers. Changes nothing by itself."""

import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, TypeVar

import click

if TYPE_CHECKING:
    from nodeward.neighbours.hook.install import Hook

_F = TypeVar("_F", bound=Callable[..., object])
_OPTIONS = (
    click.option("--hook", "path", help="The program.  [default: nodeward-oci-hook beside this one, or in PATH]"),
    click.option("--on-error", type=click.Choice(["pass", "refuse"]), default="pass", show_default=True,
                 help="What a failure means where neither the daemon nor its files say it."),
    click.option("--folder", default="/run/nodeward", show_default=True, help="The settings' hook.folder."),
)  # fmt: skip


def hook_options(command: _F) -> _F:
    """The options that say how the hook is called."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def chosen(path: str | None, on_error: str, folder: str) -> "Hook":
    """The hook of these options; an error where the program is nowhere."""
    from nodeward.neighbours.hook.install import PROGRAM, Hook

    beside = Path(sys.executable).parent / PROGRAM
    found = path or (str(beside) if beside.exists() else shutil.which(PROGRAM))
    if found is None or not found.startswith("/"):
        raise click.UsageError(f"{found or PROGRAM} is no absolute path to the hook; give --hook /path/to/{PROGRAM}")
    return Hook(found, ("--on-error", on_error, "--folder", folder))


@click.group("hook")
def command() -> None:
    """Print what puts the OCI hook into containers, for nodes without NRI.

    \b
    Examples:
      nodeward setup hook hooks-d > /usr/share/containers/oci/hooks.d/50-nodeward.json
      ctr oci spec | nodeward setup hook base-spec > /etc/containerd/nodeward.json
      nodeward setup hook containerd-config
    """


@command.command("hooks-d")
@hook_options
def print_hooks_d(path: str | None, on_error: str, folder: str) -> None:
    """Print a file for hooks.d (oci-hooks(5), schema 1.0.0).

    \b
    Examples:
      nodeward setup hook hooks-d > /usr/share/containers/oci/hooks.d/50-nodeward.json
      nodeward setup hook hooks-d --hook /opt/nodeward/bin/nodeward-oci-hook --on-error refuse
    """
    from nodeward.neighbours.hook import install

    sys.stdout.write(install.hooks_d(chosen(path, on_error, folder)).decode())


@command.command("base-spec")
@click.option("--from", "source", type=click.File("rb"), default="-", help="What ctr oci spec prints; else stdin.")
@hook_options
def print_base_spec(source: BinaryIO, path: str | None, on_error: str, folder: str) -> None:
    """Print containerd's own default spec with the hook in it, for base_runtime_spec.

    \b
    Examples:
      ctr oci spec | nodeward setup hook base-spec > /etc/containerd/nodeward.json
      nodeward setup hook base-spec --from default.json --on-error refuse
    """
    from nodeward.neighbours.hook import install

    data = source.read(install.MAX_SPEC + 1)
    sys.stdout.write(install.base_spec(data, chosen(path, on_error, folder)).decode())


@command.command("containerd-config")
@click.option("--spec", default="/etc/containerd/nodeward.json", show_default=True, help="Where the base spec is.")
@click.option("--runtime", default="runc", show_default=True, help="The runtime's name in the settings.")
@click.option("--version", type=click.Choice(["2", "3"]), default="3", show_default=True,
              help="The settings' version: 3 since containerd 2.0, 2 before.")  # fmt: skip
def print_containerd(spec: str, runtime: str, version: str) -> None:
    """Print the lines that containerd's settings need.

    \b
    Examples:
      nodeward setup hook containerd-config
      nodeward setup hook containerd-config --version 2 --spec /etc/containerd/base.json
    """
    from nodeward.neighbours.hook import install

    sys.stdout.write(install.containerd_lines(spec, runtime, int(version)))
