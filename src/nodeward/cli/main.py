"""`nodeward`: the group of sub-commands. Imports click, and of the house only the exit codes."""

import importlib
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import click

from nodeward import __version__
from nodeward.cli import exits

COMMANDS = {
    "node": "Run the daemon on this node.",
    "relay": "Pass CRI messages between kubelet and the runtime.",
    "kubelet": "Point this machine's kubelet at the relay, and back.",
    "runtime": "Switch NRI on in containerd or CRI-O, and back.",
    "agent": "Push a cluster's ConfigMap for this node to the relay or the daemon.",
    "webhook": "Answer the API server about pods: devices, limits, refusals.",
    "sim": "Run the daemon against a simulated node: no hardware, no cluster, no root.",
    "status": "Show what each pod was promised, holds and was refused.",
    "top": "Show `status` again every second.",
    "page": "Show the node as a web page on this machine.",
    "keys": "Show TEE keys: how many there are, who holds them, what is free.",
    "cpus": "Draw the machine's CPUs, and who may run where.",
    "sandboxes": "Show VM sandboxes: where they are, what they cost, whether they fit.",
    "gate": "Set the verdict on a pod that waits at its gate.",
    "pod": "Show what the node knows of a pod, its spec without secrets.",
    "volume": "Check, add and list volumes that VMs of Kata mount themselves.",
    "network": "Check and write files of networks that VMs of Kata take over.",
    "policies": "List the CPU policies, explain one, check and plan one of a file.",
    "explain": "Say in sentences why a pod or container has its limit.",
    "sandbox-cgroup": "Place a VM sandbox in host cgroups, for VM runtimes that do not.",
    "doctor": "Say what this machine and cluster lack, and how to mend it.",
    "hook": "Print what puts the OCI hook into containers, for nodes without NRI.",
    "cdi": "Print a CDI spec: a device that brings the OCI hook.",
    "dump": "Show the calls in a relay's dump of CRI messages.",
    "config": "Check settings, show where each comes from, or print their schema.",
    "completion": "Print the script by which a shell completes commands.",
    "replay": "Decide a record's events again and compare; also under other settings.",
    "decommission": "Take back the TEE keys that kubelet is offered on this node.",
    "uninstall": "Take back what Nodeward changed on this node.",
}
MODULES = {
    "kubelet": "setup.relay",
    "runtime": "setup.runtime",
    "sandboxes": "vms",
    "gate": "pod.gate",
    "volume": "vms.volume",
    "network": "vms.network",
    "policies": "cpus.policies",
    "sandbox-cgroup": "vms.cgroup",
    "hook": "setup.hook",
    "cdi": "setup.cdi",
    "completion": "setup.completion",
}
"""Where a command is that has not a module of its name."""
ELSEWHERE = "nodeward_sim.verb"
"""Of a package of its own, which the image and the bundle leave out."""
LEFT_OUT = "the simulation is not part of this installation; `make run` in a checkout of Nodeward starts it"


@contextmanager
def _piped() -> Iterator[None]:
    """Ends by SIGPIPE and without a word once nobody reads standard output any more, as other programs do."""
    try:
        try:
            yield
        finally:
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


def _version(context: click.Context, _: click.Parameter, wanted: bool) -> None:
    """The version, and the commit where it is known."""
    if wanted and not context.resilient_parsing:
        from nodeward.cli.commit import commit, short

        found = short(commit())
        click.echo(f"nodeward, version {__version__}{f' (commit {found})' if found else ''}")
        context.exit()


class _Lazy(Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module = f"nodeward.cli.{MODULES.get(cmd_name, cmd_name)}" if cmd_name != "sim" else ELSEWHERE
        try:
            command = importlib.import_module(module).command
        except ModuleNotFoundError as error:
            if error.name != ELSEWHERE.partition(".")[0]:
                raise
            raise click.ClickException(LEFT_OUT) from error
        return command if isinstance(command, click.Command) else None

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        try:
            return super().resolve_command(ctx, args)
        except click.NoSuchCommand as error:  # click suggests loaded commands only
            raise click.NoSuchCommand(error.command_name, possibilities=COMMANDS, ctx=ctx) from error

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


@click.group(cls=_Lazy, context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--version", is_flag=True, is_eager=True, expose_value=False, callback=_version, help="Show the version and exit."
)
def cli() -> None:
    """Nodeward keeps a Kubernetes node honest about scarce hardware.

    \b
    Examples:
      nodeward sim                               a simulated node, live
      nodeward node --config /etc/nodeward.yaml  the daemon
      nodeward explain default/web               why a pod has its limits
    """


def main() -> None:
    """The console script."""
    run(cli, "nodeward")


def run(group: click.Group, name: str) -> None:
    """Runs the group. Errors that a person can act on end with 1 and one clear text."""
    from nodeward.core.errors import NodewardError

    try:
        group(prog_name=name)
    except NodewardError as error:
        print(f"{name}: {error}", file=sys.stderr)
        sys.exit(exits.FAILED)
    except PermissionError as error:
        print(f"{name}: {error}; the daemon and its tools run as root", file=sys.stderr)
        sys.exit(exits.FAILED)
