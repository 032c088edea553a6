"""What this node's NodeResourceTopology object says (topology.node.k8s.io/v1alpha2). `owned` keeps it there."""

from collections.abc import Mapping

from nodeward.core.topology import NodeZones, Zone
from nodeward.neighbours.kubernetes.owned import ObjectKind, Said


def _said(wanted: NodeZones) -> Said:
    return {"zones": _zones(wanted), "attributes": _attributes(wanted.attributes)}


def _zones(of: NodeZones) -> list[object]:
    return [_zone(one) for one in of.zones]


def _zone(one: Zone) -> dict[str, object]:
    zone: dict[str, object] = {"name": one.name, "type": one.type}
    if one.parent:
        zone["parent"] = one.parent
    if one.costs:
        zone["costs"] = [{"name": name, "value": value} for name, value in one.costs.items()]
    if one.cpu is not None:
        amounts = (one.cpu.capacity_m, one.cpu.allocatable_m, one.cpu.available_m)
        texts = zip(("capacity", "allocatable", "available"), map(_quantity, amounts), strict=True)
        zone["resources"] = [{"name": "cpu", **dict(texts)}]
    if one.attributes:
        zone["attributes"] = _attributes(one.attributes)
    return zone


def _attributes(of: Mapping[str, str]) -> list[object]:
    return [{"name": name, "value": value} for name, value in of.items()]


def _quantity(milli: int) -> str:
    return f"{milli}m" if milli % 1000 else str(milli // 1000)


TOPOLOGY: ObjectKind[NodeZones] = ObjectKind(
    "NodeResourceTopology",
    "topology.node.k8s.io/v1alpha2",
    "noderesourcetopologies",
    setting="set topology_objects.enabled to false",
    unserved="install their CustomResourceDefinition",
    said=_said,
)
