"""What limits need of the daemon: who performs their goals, and who sells enclave memory by claim."""

import os
from collections.abc import Mapping

from nodeward.core.claims import Promised
from nodeward.core.modes import Mode
from nodeward.core.ports import Perform
from nodeward.features.root import State
from nodeward.features.wiring import Node, Remember, Wired, Wiring
from nodeward.host.hostfs import HostFiles
from nodeward.host.slots import ByEdge
from nodeward.neighbours.cgroups import writer
from nodeward.neighbours.cgroups.hierarchy import Tree


def _components(node: Node) -> Wired:
    dra = node.settings.limits.dra
    wants = node.settings.limits.mode is not Mode.OFF and dra.mode is Mode.ENFORCE
    if not wants and not node.changes:
        return Wired(())
    os.environ.setdefault("GRPC_VERBOSITY", "ERROR")
    from nodeward.features import by_claim
    from nodeward.features.limits import claims
    from nodeward.neighbours.dra.cdi import Edits

    def edits(state: State, _: Promised) -> dict[str, Edits]:
        return {claims.DEVICE: Edits(state.settings.limits.dra.devices)}

    sold = by_claim.Sold(
        *("limits", dra.driver, dra.cdi_dir, "limits.dra.mode", "epc-slice", wants),
        is_sold=claims.are_sold,
        is_known=lambda state: state.limits.by_claim.recalled,
        promised=lambda state: state.limits.by_claim.claims,
        edits=edits,
        health=lambda _: [(claims.DEVICE, True, "")],
    )
    return by_claim.wired(node, sold)


def _performers(files: HostFiles, tree: Tree, remember: Remember) -> Mapping[str, Perform | ByEdge]:
    return {**writer.performers(files, tree, remember), "epc-slice": ByEdge("epc-slice")}


WIRING = Wiring(_components, _performers)
