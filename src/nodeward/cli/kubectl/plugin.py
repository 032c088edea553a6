"""`kubectl nodeward`: status, top, explain and doctor over all nodes of a cluster, through kubectl.

kubectl runs an executable named `kubectl-nodeward` on PATH. It runs `nodeward` in the DaemonSet's pods and shows the
answers as one. A node without an answer is named with the reason, and the exit code is 1; the others are shown.
"""

import asyncio
import itertools
import json
import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

import click

from nodeward import __version__
from nodeward.cli import exits
from nodeward.cli.main import Group, run

if TYPE_CHECKING:
    from nodeward.cli.kubectl.answers import Status
    from nodeward.cli.kubectl.nodes import Answer, Cluster

F = TypeVar("F", bound=Callable[..., object])
HOME = "nodeward"


def _common(command: F) -> F:
    for option in (
        click.option("--context", help="The context of the kubeconfig."),
        click.option("--kubeconfig", type=click.Path(), help="The kubeconfig file."),
        click.option("--nodeward-namespace", "home", default=HOME, show_default=True, help="Where Nodeward is."),
        click.option(
            "--timeout", "timeout_s", type=click.FloatRange(0.1, 600), default=10.0, show_default=True,
            help="Seconds that each node has for its answer.",
        ),
    ):  # fmt: skip
        command = option(command)
    return command


def _rows(command: F) -> F:
    for option in (
        click.option("-n", "--namespace", help="Only pods of this namespace."),
        click.option("--state", "states", multiple=True, help="Only cgroups in this state; can be repeated."),
        click.option("-o", "--output", type=click.Choice(["table", "json"]), default="table", show_default=True),
    ):
        command = option(command)
    return command


@click.group("kubectl nodeward", cls=Group)
@click.version_option(__version__, prog_name="kubectl nodeward")
def cli() -> None:
    """Ask the Nodeward of every node of a cluster, through kubectl.

    Needs kubectl on PATH and the rights to list pods and to exec into those of Nodeward's namespace.

    \b
    Exit code: 0 every node answered, 1 one did not, 2 a usage error. doctor: also by the worst finding.

    \b
    Examples:
      kubectl nodeward status
      kubectl nodeward explain web -n shop
    """


@cli.command("status")
@_rows
@_common
def status(
    context: str | None, kubeconfig: str | None, home: str, timeout_s: float,
    namespace: str | None, states: tuple[str, ...], output: str,
) -> None:  # fmt: skip
    """Show one table of all nodes: what each pod was promised, holds and was refused.

    \b
    Examples:
      kubectl nodeward status
      kubectl nodeward status -n shop --state drift --state outside
      kubectl nodeward status --context prod -o json | jq '.nodes[] | select(.fault)'
    """
    from nodeward.cli.kubectl.nodes import Cluster

    told = _statuses(Cluster(context, kubeconfig, home, timeout_s), namespace, states)
    _show(told, output)
    sys.exit(_code(told))


@cli.command("top")
@_rows
@click.option("--every", "every_s", type=click.FloatRange(1, 3600), default=5.0, show_default=True, help="Seconds.")
@click.option("--times", type=click.IntRange(1), help="Stop after so many views.")
@_common
def top(
    context: str | None, kubeconfig: str | None, home: str, timeout_s: float, namespace: str | None,
    states: tuple[str, ...], output: str, every_s: float, times: int | None,
) -> None:  # fmt: skip
    """Show `status` again and again, until Ctrl-C. As JSON, each view is one document on a line of its own.

    \b
    Examples:
      kubectl nodeward top --every 10
      kubectl nodeward top -n shop --times 3 -o json
    """
    from nodeward.cli.kubectl.nodes import Cluster

    cluster = Cluster(context, kubeconfig, home, timeout_s)
    code = exits.GOOD
    try:
        for number in itertools.count() if times is None else range(times):
            if number:
                time.sleep(every_s)
            told = _statuses(cluster, namespace, states)
            if output == "table" and sys.stdout.isatty():
                click.clear()
            _show(told, output)
            sys.stdout.flush()
            code = _code(told)
    except KeyboardInterrupt:
        pass
    sys.exit(code)


@cli.command("explain")
@click.argument("what", metavar="POD[/CONTAINER]")
@click.option("-n", "--namespace", help="The pod's namespace.  [default: kubectl's]")
@click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text", show_default=True)
@_common
def explain(
    context: str | None, kubeconfig: str | None, home: str, timeout_s: float, what: str, namespace: str | None,
    output: str,
) -> None:  # fmt: skip
    """Say why a pod or container has its limit: finds the pod's node, and asks the Nodeward there.

    A name with one slash is POD/CONTAINER where --namespace is given, else NAMESPACE/POD.

    \b
    Examples:
      kubectl nodeward explain web -n shop
      kubectl nodeward explain shop/web/enclave
    """
    from nodeward.cli.kubectl import nodes
    from nodeward.cli.kubectl.answers import sentences

    cluster = nodes.Cluster(context, kubeconfig, home, timeout_s)
    space, pod, container = _named(what, namespace)

    async def asked() -> "tuple[str, Answer]":
        found, node = await nodes.node_of(cluster, space, pod)
        full = "/".join([found, pod, *([container] if container else [])])
        there = await nodes.places(cluster, node)
        return node, (await nodes.ask(cluster, there, lambda _: ("nodeward", "explain", full, "-o", "json")))[0]

    node, answer = asyncio.run(asked())
    lines, fault = sentences(answer)
    if output == "json":
        print(json.dumps({"node": node, "lines": lines, "fault": fault}))
    else:
        print(f"node {node}:")
        for line in lines:
            print(line)
    if fault:
        print(f"kubectl nodeward: node {node}: {fault}", file=sys.stderr)
        sys.exit(exits.FAILED)


@cli.command("doctor")
@click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text", show_default=True)
@_common
def doctor(context: str | None, kubeconfig: str | None, home: str, timeout_s: float, output: str) -> None:
    """Say what each node lacks, as Nodeward's pod there sees it, and how to mend it.

    \b
    Examples:
      kubectl nodeward doctor
      kubectl nodeward doctor -o json | jq '.nodes[] | select(.worst == "error") | .node'
    """
    from nodeward.cli.kubectl import nodes
    from nodeward.cli.kubectl.answers import diagnosed, in_json, print_findings

    cluster = nodes.Cluster(context, kubeconfig, home, timeout_s)

    async def asked() -> "list[Answer]":
        def command(place: nodes.NodewardPod) -> list[str]:
            return ["nodeward", "doctor", "-o", "json", *(["--config", place.config] if place.config else [])]

        return await nodes.ask(cluster, await nodes.places(cluster), command)

    found = [diagnosed(answer) for answer in asyncio.run(asked())]
    if output == "json":
        print(in_json(found))
    else:
        for one in found:
            print_findings(one)
    sys.exit(max(exits.FAILED if one.fault else exits.BY_SEVERITY[one.worst] for one in found))


def _statuses(cluster: "Cluster", namespace: str | None, states: tuple[str, ...]) -> "list[Status]":
    from nodeward.cli.kubectl import nodes
    from nodeward.cli.kubectl.answers import status_of

    async def asked() -> "list[Answer]":
        return await nodes.ask(cluster, await nodes.places(cluster), lambda _: ("nodeward", "status", "-o", "json"))

    return [status_of(answer, namespace, states) for answer in asyncio.run(asked())]


def _show(told: "list[Status]", output: str) -> None:
    from nodeward.cli.kubectl.answers import draw, in_json

    if output == "json":
        print(in_json(told))
    else:
        from nodeward.people.table import console

        console().print(draw(told))


def _code(told: "list[Status]") -> int:
    return exits.FAILED if any(one.fault for one in told) else exits.GOOD


def _named(what: str, namespace: str | None) -> tuple[str | None, str, str]:
    """Namespace, pod and container, the last empty for none."""
    pieces = what.split("/")
    if namespace is None and len(pieces) > 1:
        namespace, *pieces = pieces
    if len(pieces) > 2:
        raise click.BadParameter(f"{what!r} is no POD[/CONTAINER]; the namespace is given once", param_hint="POD")
    return namespace, pieces[0], pieces[1] if len(pieces) > 1 else ""


def main() -> None:
    """The console script `kubectl-nodeward`."""
    run(cli, "kubectl nodeward")
