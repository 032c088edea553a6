"""`kubectl nodeward`: the commands that look, over all nodes of a cluster, through kubectl.

kubectl runs an executable named `kubectl-nodeward` on PATH. It runs `nodeward` in the DaemonSet's pods and shows the
answers as one. A node without an answer is named with the reason, and the exit code is 1; the others are shown.
"""

import asyncio
import itertools
import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

import click

from nodeward import __version__
from nodeward.cli import exits
from nodeward.cli.flags import output_option, print_data
from nodeward.cli.groups import Group
from nodeward.cli.main import COMMANDS, run

if TYPE_CHECKING:
    from nodeward.cli.kubectl.answers import Status
    from nodeward.cli.kubectl.nodes import Answer, Cluster, NodewardPod
    from nodeward.people.pods import PodRow

F = TypeVar("F", bound=Callable[..., object])
HOME = "nodeward"
OF_POD = ("explain", "vms", "pod")
"""Commands whose argument is a pod."""
BELOW = ("move", "policies", "volume", "network", "cgroup", "gate")
"""Sub-commands, which are of one node: some of them change it."""


def _common(command: F) -> F:
    for option in (
        click.option("--context", help="The context of the kubeconfig."),
        click.option("--kubeconfig", type=click.Path(), help="The kubeconfig file."),
        click.option("--nodeward-namespace", "home", default=HOME, show_default=True, help="Where Nodeward is."),
        click.option("--node", default="", help="Only this node."),
        click.option(
            "--timeout", "timeout_s", type=click.FloatRange(0.1, 600), default=10.0, show_default=True,
            help="Seconds that each node has for its answer.",
        ),
    ):  # fmt: skip
        command = option(command)
    return command


@click.group("kubectl nodeward", cls=Group)
@click.version_option(__version__, prog_name="kubectl nodeward")
def cli() -> None:
    """Ask the Nodeward of every node of a cluster, through kubectl.

    Needs kubectl on PATH and the rights to list pods and to exec into those of Nodeward's namespace.

    \b
    Exit code: 0 every node answered, 1 one did not or its answer is no, 2 a usage error.

    \b
    Examples:
      kubectl nodeward status
      kubectl nodeward explain web -n shop
      kubectl nodeward keys -o json
      kubectl nodeward cpus --node node-1
    """


@cli.command("status")
@click.option("-n", "--namespace", help="Only pods of this namespace.")
@click.option("--state", "states", multiple=True, help="Only pods with this in the column STATE; repeatable.")
@output_option()
@click.option("-w", "--watch", is_flag=True, help="Show it again and again, until Ctrl-C.")
@click.option("--every", "every_s", type=click.FloatRange(1, 3600), default=5.0, show_default=True,
              help="With --watch: seconds from one view to the next.")  # fmt: skip
@click.option("--times", type=click.IntRange(1), help="With --watch: stop after so many views.")
@_common
def status(
    context: str | None, kubeconfig: str | None, home: str, node: str, timeout_s: float,
    namespace: str | None, states: tuple[str, ...], output: str, watch: bool, every_s: float, times: int | None,
) -> None:  # fmt: skip
    """Show one table of all nodes: what each pod was promised, holds and was refused.

    With --watch and as JSON each view is one document on a line of its own.

    \b
    Examples:
      kubectl nodeward status
      kubectl nodeward status -n shop --state drift --state outside
      kubectl nodeward status --watch --every 10
      kubectl nodeward status --context prod -o json | jq '.nodes[] | select(.fault)'
    """
    from nodeward.cli.kubectl.answers import draw
    from nodeward.cli.kubectl.nodes import Cluster
    from nodeward.people.table import console

    cluster, code = Cluster(context, kubeconfig, home, timeout_s), exits.GOOD
    views = range(times or 1) if not watch or times else itertools.count()
    try:
        for number in views:
            if number:
                time.sleep(every_s)
            told = _statuses(cluster, node, namespace, states)
            if watch and output == "text" and sys.stdout.isatty():
                click.clear()
            if not print_data({"nodes": [one for one, _ in told]}, output, is_one_of_many=watch):
                console().print(draw(told))
            sys.stdout.flush()
            code = exits.FAILED if any(one.fault for one, _ in told) else exits.GOOD
    except KeyboardInterrupt:
        pass
    sys.exit(code)


@cli.command("doctor")
@output_option()
@_common
def doctor(context: str | None, kubeconfig: str | None, home: str, node: str, timeout_s: float, output: str) -> None:
    """Say what each node lacks, as Nodeward's pod there sees it, and how to mend it.

    \b
    Examples:
      kubectl nodeward doctor
      kubectl nodeward doctor -o json | jq '.nodes[] | select(.worst == "error") | .node'
    """
    from nodeward.cli.kubectl.answers import diagnosed, print_findings
    from nodeward.cli.kubectl.nodes import Cluster

    def command(place: "NodewardPod") -> list[str]:
        return ["nodeward", "doctor", "-o", "json", *(["--config", place.config] if place.config else [])]

    found = [diagnosed(answer) for answer in _asked(Cluster(context, kubeconfig, home, timeout_s), node, command)]
    if not print_data({"nodes": found}, output):
        for one in found:
            print_findings(one)
    sys.exit(max(exits.FAILED if one.fault else exits.BY_SEVERITY.get(one.worst, exits.FAILED) for one in found))


def _passed_on(name: str, words: str, about: str, examples: tuple[str, ...]) -> None:
    """A command whose words are those of `nodeward NAME`, run in the pods."""

    @click.argument("words", metavar=words, nargs=-1, type=click.UNPROCESSED)
    @output_option()
    @_common
    def command(
        context: str | None, kubeconfig: str | None, home: str, node: str, timeout_s: float, words: tuple[str, ...],
        output: str, namespace: str | None = None,
    ) -> None:  # fmt: skip
        from nodeward.cli.kubectl.nodes import Cluster

        if {"hold", "--"} & set(words):
            raise click.UsageError("a command of the node's own cannot be run through kubectl: run this on the node")
        if words and words[0] in BELOW and not node:
            raise click.UsageError(f"`{name} {words[0]}` is of one node: name it by --node")
        sys.exit(_answered(Cluster(context, kubeconfig, home, timeout_s), node, name, words, namespace, output))

    command.__doc__ = f"{COMMANDS[name]}\n\n    {about}\n\n    \b\n    Examples:\n" + "".join(
        f"      kubectl nodeward {one}\n" for one in examples
    )
    if name in OF_POD:
        help_ = "The namespace of the pod that is named.  [default: kubectl's]"
        command = click.option("-n", "--namespace", help=help_)(command)
    cli.command(name, context_settings={"ignore_unknown_options": True})(command)


_OF_A_POD = "Of a pod that is named its node alone is asked. A name with one slash is NAMESPACE/POD."
_passed_on("explain", "POD[/CONTAINER]", f"{_OF_A_POD} With --namespace it is POD/CONTAINER.",
           ("explain web -n shop", "explain shop/web/enclave"))  # fmt: skip
_passed_on(
    "keys",
    "[move ...]",
    "To move keys, name the node by --node, and give --timeout more than its --within.",
    ("keys", "keys -o json"),
)
_passed_on("cpus", "[policies ...]", "For what is below it, name the node by --node.", ("cpus", "cpus --node node-1"))
_passed_on("vms", "[POD]", _OF_A_POD, ("vms", "vms shop/web", "vms --classes", "vms volume list --node node-1"))
_passed_on("pod", "[POD]", _OF_A_POD, ("pod --list", "pod shop/web --spec"))


def _answered(
    cluster: "Cluster", node: str, name: str, words: tuple[str, ...], namespace: str | None, output: str
) -> int:
    """Shows what each node answers, and returns the exit code."""
    from nodeward.cli.kubectl import nodes
    from nodeward.cli.kubectl.answers import passed

    rest = list(words)
    at = next((n for n, word in enumerate(words) if name == "explain" or word[:1] != "-"), None)
    is_of_pod = name in OF_POD and at is not None and words[at] not in BELOW
    if is_of_pod and at is not None:
        space, pod, container = _named(words[at], namespace)
        full, node = asyncio.run(nodes.node_of(cluster, space, pod))
        rest[at] = "/".join([full, pod, *([container] if container else [])])
    elif name == "explain":
        raise click.UsageError("give POD, NAMESPACE/POD or NAMESPACE/POD/CONTAINER")
    is_text = output == "text"
    line = ["nodeward", name, *rest, *([] if is_text else ["-o", "json"])]
    told = [passed(answer, is_text) for answer in _asked(cluster, node, lambda _: line)]
    if not print_data({"nodes": told}, output):
        for one in told:
            print(f"node {one.node or one.pod}:" + (f" no answer: {one.fault}" if one.fault else ""))
            for said in one.lines:
                print(f"  {said}")
    return exits.FAILED if any(one.fault or one.code for one in told) else exits.GOOD


def _asked(cluster: "Cluster", node: str, command: "Callable[[NodewardPod], list[str]]") -> "list[Answer]":
    from nodeward.cli.kubectl import nodes

    async def asked() -> "list[Answer]":
        return await nodes.ask(cluster, await nodes.places(cluster, node), command)

    return asyncio.run(asked())


def _statuses(
    cluster: "Cluster", node: str, namespace: str | None, states: tuple[str, ...]
) -> "list[tuple[Status, tuple[PodRow, ...]]]":
    from nodeward.cli.kubectl.answers import status_of

    answers = _asked(cluster, node, lambda _: ["nodeward", "status", "-o", "json"])
    return [status_of(answer, namespace, states) for answer in answers]


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
