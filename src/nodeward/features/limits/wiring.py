"""What limits need of the daemon: who performs their goals, who sells enclave memory by claim, who gives the device
nodes of SGX."""

import os
from collections.abc import Mapping
from functools import partial

from nodeward.core.claims import Promised
from nodeward.core.devices import SGX_NODES
from nodeward.core.modes import Mode
from nodeward.core.ports import Perform
from nodeward.features.limits.settings import GivenBy
from nodeward.features.root import State
from nodeward.features.wiring import Node, Remember, Wired, Wiring
from nodeward.host.hostfs import HostFiles
from nodeward.host.slots import ByEdge
from nodeward.neighbours.cgroups import writer
from nodeward.neighbours.cgroups.hierarchy import Tree


def _components(node: Node) -> Wired:
    from nodeward.features.limits.effects import node_epc

    every = (_by_claim(node), _devices(node), node_epc.wired(node))
    return Wired(tuple(one for of in every for one in of.components), tuple(one for of in every for one in of.withdraw))


def _devices(node: Node) -> Wired:
    """Who looks at the device nodes of SGX, and the plugins that offer them."""
    settings, lane = node.settings, partial(node.lane, "enclaves")
    sells = settings.limits.dra.mode is not Mode.OFF or settings.limits.node_epc
    if settings.limits.devices is GivenBy.OFF and not sells:
        return Wired(())
    from nodeward.neighbours.sysfs import enclaves

    async def look() -> None:
        looking = lane()
        try:
            await enclaves.keep_looking(tuple(SGX_NODES.values()), node.files, looking, node.core.tell, node.clock)
        finally:
            looking.close(0.0)

    if settings.limits.devices is GivenBy.OFF:
        return Wired((("enclaves", look),))
    os.environ.setdefault("GRPC_VERBOSITY", "ERROR")
    from nodeward.features import by_id
    from nodeward.features.limits.devices import KIND, ids_begin
    from nodeward.neighbours.kubelet.checkpoint import CheckpointFile
    from nodeward.neighbours.kubelet.folder import Offering

    def offering(resource: str, path: str) -> Offering:
        remedy = f"it is what {resource} stands for: docs/claims.md"
        key = ids_begin(resource).removesuffix("-")
        return Offering(key, resource, ids_begin(resource), devices=lambda: (path,), remedy=remedy, tokens=True)

    checkpoint = CheckpointFile(node.files, settings.keys.kubelet_dir, tuple(SGX_NODES))
    offered = [offering(*one) for one in SGX_NODES.items()]
    plugins, withdraw = by_id.plugins(
        *(offered, settings, node.by_edge[KIND], node.core, partial(node.lane, "plugin"), node.clock),
        *(checkpoint, node.note),
    )
    return Wired((*plugins, ("enclaves", look)), (withdraw,))


def _by_claim(node: Node) -> Wired:
    dra = node.settings.limits.dra
    wants = node.settings.limits.mode is not Mode.OFF and dra.mode is Mode.ENFORCE
    if not wants and not node.changes:
        return Wired(())
    os.environ.setdefault("GRPC_VERBOSITY", "ERROR")
    from nodeward.features import by_claim
    from nodeward.features.limits import claims
    from nodeward.neighbours.dra.cdi import Edits

    def edits(state: State, one: Promised) -> dict[str, Edits]:
        return dict.fromkeys(one.amounts, Edits(state.settings.limits.dra.devices))

    sold = by_claim.Sold(
        *("limits", dra.driver, dra.cdi_dir, "limits.dra.mode", "epc-slice", wants),
        is_sold=claims.are_sold,
        is_known=lambda state: state.limits.by_claim.recalled,
        promised=lambda state: state.limits.by_claim.claims,
        edits=edits,
        health=lambda state: [(name, True, "") for name in claims.sizes(state)],
    )
    return by_claim.wired(node, sold)


def _performers(files: HostFiles, tree: Tree, remember: Remember) -> Mapping[str, Perform | ByEdge]:
    return {**writer.performers(files, tree, remember), **{kind: ByEdge(kind) for kind in ("epc-slice", "sgx-offer")}}


WIRING = Wiring(_components, _performers)
