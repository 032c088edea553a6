"""The node labels by which KubeVirt finds nodes for VMs with `dedicatedCpuPlacement`, as `cpus.kubevirt_label` has it.

They are there while a policy gives Guaranteed containers whole CPUs of their own, and are put back when KubeVirt resets
them. When no such policy is in force any more, and at the end of the daemon, they are taken away: a VM that starts then
would share its CPUs. After a crash KubeVirt's own next write, within about two minutes, resets them.
"""

import asyncio
import logging
import os
from collections.abc import Callable, Mapping

from nodeward.core.decision import Special
from nodeward.core.errors import NodewardError
from nodeward.core.modes import Mode
from nodeward.features.cpus.policies.table import policy_of
from nodeward.features.cpus.state import is_unfit
from nodeward.features.root import State
from nodeward.features.settings import Settings
from nodeward.features.wiring import Node, Wired, name_of_node
from nodeward.host.clock import Clock, SystemClock
from nodeward.neighbours.kubernetes import auth
from nodeward.neighbours.kubernetes.errors import KubeError
from nodeward.neighbours.kubernetes.node_label import LABELS, LabelClient
from nodeward.neighbours.kubernetes.owned import RETIRE_S, Owned
from nodeward.neighbours.kubernetes.settings import KubeSettings

log = logging.getLogger(__name__)
KIND = "kubevirt"
"""Of the change on the undo list."""
NAME = "kubevirt-label"
NONE = "not set: no policy that gives Guaranteed containers whole CPUs of their own is enforced"
PAUSE_S = 1.0
"""KubeVirt resets the labels for ever: each time they are put back after the same short wait."""


def wanted(state: State) -> str | Special | None:
    """The value of the labels; ABSENT where they would claim what is not so, None while it is not known."""
    cpus = state.cpus
    if not state.settings.cpus.kubevirt_label or state.settings.cpus.mode is not Mode.ENFORCE or is_unfit(cpus):
        return Special.ABSENT
    if cpus.machine is None or not state.pods.runtime:
        return None
    return "true" if policy_of(cpus.rules.active).dedicates(cpus.rules) else Special.ABSENT


def client_of(
    settings: Settings, environ: Mapping[str, str], clock: Clock, node: str, cares: Callable[[], bool]
) -> LabelClient:
    """Requests about a node's labels."""
    kube = KubeSettings(endpoint=auth.endpoint_of(settings.kube, environ), node_name=node)
    return LabelClient(kube, "set cpus.kubevirt_label to false", clock, cares)


def remove(settings: Settings, environ: Mapping[str, str], name: str) -> str:
    """Takes the labels away from this node if they are ours; what became of them. NodewardError where that cannot be
    done."""
    try:
        return asyncio.run(client_of(settings, environ, SystemClock(), name, lambda: False).take_back())
    except KubeError as error:
        raise NodewardError(f"{error}; or by hand: kubectl label node {name} {'- '.join(LABELS)}-") from error


def wired(node: Node) -> Wired:
    """The session where the settings choose it; or, where an earlier life has left the labels, their removal."""
    chosen, left = node.settings.cpus.kubevirt_label, any(one.target.startswith(f"{KIND}:") for one in node.changes)
    if not node.settings.kube.enabled or not (chosen or left):
        return Wired(())
    core, name = node.core, name_of_node(node.settings, os.environ)

    def is_absent() -> bool:
        return wanted(core.state) is Special.ABSENT

    def note(ready: bool, text: str) -> None:
        is_lacking = ready and chosen and is_absent()
        node.note(NAME, ready and not is_lacking, NONE if is_lacking else text)

    async def run() -> None:
        client = client_of(node.settings, os.environ, node.clock, name, lambda: not is_absent())
        session = Owned(
            client,
            lambda: wanted(core.state),
            lambda: node.undo.remember(f"{KIND}:{name}", "absent"),
            node.clock,
            note,
            pause_s=PAUSE_S,
        )
        try:
            await session.run()
        finally:
            try:
                async with asyncio.timeout(RETIRE_S):
                    log.info("object=%r %s", client.title, await client.take_back())
            except (TimeoutError, KubeError) as error:
                log.warning("object=%r why=%r", client.title, f"not taken away at the end: {error}")

    return Wired(((NAME, run),))
