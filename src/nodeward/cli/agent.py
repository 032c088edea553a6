"""`nodeward agent` and `cri-resmgr-agent`: passes a cluster's ConfigMap for this node to the relay or the daemon."""

import asyncio
import os
import sys
from collections.abc import Callable
from difflib import get_close_matches

import click

from nodeward.cli import exits
from nodeward.cli.flags import unix_socket
from nodeward.neighbours.resmgr.paths import AGENT_SOCKET, CONFIG_SOCKET

_LEVELS = click.Choice(["debug", "info", "warning", "error"])


def _option(name: str, default: str, about: str) -> Callable[[click.decorators.FC], click.decorators.FC]:
    """An option with one dash, as CRI Resource Manager writes them, or two."""
    return click.option(f"-{name}", f"--{name}", default=default, show_default=bool(default), help=about)


class _OneDash(click.Command):
    """Names a misspelt option of one dash whole; click takes it for a row of short ones."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        given = list(args)
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            words = [word.partition("=")[0] for word in given if word.startswith(error.option_name)]
            known = [name for one in self.params for name in one.opts if not name.startswith("--")]
            if not words or words[0].startswith("--"):
                raise
            near = get_close_matches(words[0], known, n=1)
            raise click.NoSuchOption(words[0], possibilities=near, ctx=ctx) from error


@click.command("agent", cls=_OneDash, context_settings={"help_option_names": ["-h", "--help"]})
@_option("kubeconfig", "", "Where the API server is, and who we are there. Without it: as this pod's service account.")
@_option("config-ns", "kube-system", "The ConfigMaps' namespace.")
@_option("configmap-name", "cri-resmgr-config", "How the ConfigMaps' names begin.")
@_option("label-name", "cri-resource-manager.intel.com/group", "The node's label that names its group.")
@_option("cri-resmgr-socket", CONFIG_SOCKET, "Where the relay or daemon takes configurations.")
@_option("agent-socket", AGENT_SOCKET, "Where this agent serves the node's object and its health.")
@click.option("--log-level", type=_LEVELS, default="info", show_default=True)
def command(
    kubeconfig: str,
    config_ns: str,
    configmap_name: str,
    label_name: str,
    cri_resmgr_socket: str,
    agent_socket: str,
    log_level: str,
) -> None:
    """Push the ConfigMap that holds for this node to the relay or the daemon, until SIGTERM.

    NODE_NAME in the environment is the node's name. cri-resmgr-config.node.NODE holds; else, for a node with the group
    label, cri-resmgr-config.group.GROUP; else cri-resmgr-config.default. `nodeward cpus policies check FILE` checks a
    ConfigMap before it is applied.

    \b
    Examples:
      NODE_NAME=node-1 nodeward agent -kubeconfig /etc/kubernetes/agent.conf
      NODE_NAME=node-1 cri-resmgr-agent -config-ns nodeward
    """
    from nodeward.features.settings import KubeSection
    from nodeward.host import process
    from nodeward.host.clock import SystemClock
    from nodeward.neighbours.kubernetes.auth import endpoint_of
    from nodeward.neighbours.kubernetes.configmaps import Names
    from nodeward.neighbours.kubernetes.errors import KubeConfigError
    from nodeward.programs.agent import Agent, AgentOptions

    node = os.environ.get("NODE_NAME", "")
    if not node:
        raise KubeConfigError("NODE_NAME is not set in the environment: set it to this node's name in the cluster")
    process.set_up_logs(log_level)
    endpoint = endpoint_of(KubeSection(kubeconfig=kubeconfig), os.environ)
    names = Names(node, config_ns, configmap_name, label_name)
    chosen = AgentOptions(endpoint, names, _path(agent_socket), _path(cri_resmgr_socket))
    process.run(Agent(chosen, SystemClock()).run(), debug=process.debug_switch(log_level))


def _path(socket: str) -> str:
    return unix_socket(socket, "a socket")


@click.command("cri-resmgr-agent-probe", cls=_OneDash, context_settings={"help_option_names": ["-h", "--help"]})
@_option("agent-socket", AGENT_SOCKET, "Where the agent serves.")
@click.option(
    *("-query", "--query"),
    type=click.Choice(["", "config-status"]),
    default="",
    metavar="QUERY",
    help="config-status: whether the last configuration is in force. Empty: whether the agent lives.",
)
def _probe(agent_socket: str, query: str) -> None:
    """Ask this node's agent how it is. Exit code: 0, 1 with the reason, or 2 for wrong options."""
    from nodeward.neighbours.resmgr import agent

    asyncio.run(agent.check_health(_path(agent_socket), query))
    print("Health check OK")


def main() -> None:
    """The console script `cri-resmgr-agent`."""
    _run(command, "cri-resmgr-agent")


def probe() -> None:
    """The console script `cri-resmgr-agent-probe`."""
    _run(_probe, "cri-resmgr-agent-probe")


def _run(program: click.Command, name: str) -> None:
    """Errors that a person can act on end with 1 and one clear text."""
    from nodeward.core.errors import NodewardError

    try:
        program(prog_name=name)
    except (NodewardError, OSError) as error:
        print(f"{name}: {error}", file=sys.stderr)
        sys.exit(exits.FAILED)
