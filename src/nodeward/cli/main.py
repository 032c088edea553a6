"""`nodeward`: the group of sub-commands. Imports click, and of the house only the exit codes."""

import importlib
import sys

import click

from nodeward import __version__
from nodeward.cli import exits
from nodeward.cli.groups import Group

GROUPS = {
    "Run": {
        "node": "The daemon: enforces, counts and tells what this node holds.",
        "relay": "Passes CRI messages between kubelet and the runtime.",
        "webhook": "Answers the API server about pods: devices, limits, refusals.",
        "agent": "Pushes the cluster's ConfigMap for this node to relay or daemon.",
        "page": "Serves the node as a web page on this machine.",
        "sim": "A simulated node, live: no hardware, no cluster, no root.",
    },
    "Look": {
        "status": "What each pod was promised, holds and was refused; --watch goes on.",
        "explain": "Why a pod or container has its limit, in sentences.",
        "doctor": "What this machine and cluster lack, and how to mend it.",
        "keys": "TEE keys: how many there are, who holds them, what is free.",
        "cpus": "The machine's CPUs and who may run where; CPU policies.",
        "vms": "VM sandboxes: size, cost, whether they fit; volumes, networks.",
        "pod": "What the node knows of a pod, its spec without secrets; its gate.",
    },
    "Set up": {
        "setup": "Switches on NRI, the relay, the OCI hook, CDI, completion.",
        "config": "Checks settings, and shows where each comes from.",
        "uninstall": "Takes back what Nodeward changed on this node.",
    },
    "Develop": {
        "dump": "Shows the calls in a relay's dump of CRI messages.",
        "replay": "Decides a record again and compares; also by other settings.",
    },
}
COMMANDS = {name: about for group in GROUPS.values() for name, about in group.items()}
NOW = {
    "top": "status --watch",
    "kubelet": "setup relay [--undo]",
    "runtime": "setup runtime",
    "hook": "setup hook",
    "cdi": "setup cdi",
    "completion": "setup completion",
    "sandboxes": "vms",
    "volume": "vms volume",
    "network": "vms network",
    "sandbox-cgroup": "vms cgroup",
    "gate": "pod gate",
    "policies": "cpus policies",
    "decommission": "uninstall --keys",
}
"""Commands that had another name before the first release."""
ELSEWHERE = "nodeward_sim.verb"
"""Of a package of its own, which the image and the bundle leave out."""
LEFT_OUT = "the simulation is not part of this installation; `make run` in a checkout of Nodeward starts it"


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
        module = f"nodeward.cli.{cmd_name}" if cmd_name != "sim" else ELSEWHERE
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
            if error.command_name in NOW:
                raise click.UsageError(f"this command is now: nodeward {NOW[error.command_name]}", ctx) from error
            raise click.NoSuchCommand(error.command_name, possibilities=COMMANDS, ctx=ctx) from error

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for title, group in GROUPS.items():
            with formatter.section(title):
                formatter.write_dl(list(group.items()))


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
