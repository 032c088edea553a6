"""Pictures of a node, and what a reader of the text makes of it."""

from collections import Counter
from dataclasses import replace
from pathlib import Path

import msgspec
import yaml
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from nodeward.features.limits.rows import CgroupRow, ResourceRow
from nodeward.people.metrics.exposition import pieces
from nodeward.people.metrics.mapping import metrics
from nodeward.people.rows import NodeView

PICTURE = Path(__file__).with_name("everything.yaml").read_text(encoding="utf-8")
RICH = msgspec.convert(yaml.safe_load(PICTURE), NodeView)
assert RICH.sandboxes is not None
SANDBOXES = RICH.sandboxes
KNOWN, BARE = SANDBOXES.rows
"""A sandbox of which everything is known, and one of which only the id is and that its cgroup has no limit."""
EPC, MIB = "sgx_epc", 1 << 20
HELD = ResourceRow(EPC, wanted=4096, limit=4096, usage=1024, peak=2048, refusals=3, refusals_here=2)
UNREAD = ResourceRow(EPC, wanted=4096, limit=None, usage=None, peak=None, refusals=None, refusals_here=None)
POD = CgroupRow("pod", "ns", "web", "", "", "/kubepods/podu", "enforced", "api", "", (HELD,))
APP = replace(POD, level="container", container="app", id="c0ffee", cgroup="/kubepods/podu/c0ffee")


def node(*rows: CgroupRow, usage: int = 1024) -> NodeView:
    return NodeView("enforce", "containerd 2.4", "answers", True, {EPC: 1 << 20}, {EPC: usage}, rows)


def full_node(pods: int, per_pod: int) -> NodeView:
    rows = []
    for number in range(pods):
        home = (
            f"/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{number:08x}_1234_1234_1234_123456789abc"
        )
        pod = replace(POD, namespace="namespace-a", pod=f"deployment-{number:08x}-abcde", cgroup=f"{home}.slice")
        rows.append(pod)
        for one in range(per_pod):
            name = f"{number * per_pod + one:064x}"
            row = replace(pod, level="container", container=f"container-{one}", id=name)
            rows.append(replace(row, cgroup=f"{home}.slice/cri-containerd-{name}.scope"))
    return node(*rows)


def read(view: NodeView) -> list[Sample]:
    """Every sample, as a reader of the text format finds it; this one adds `_total` to a counter that has none."""
    return [
        sample._replace(name=sample.name.replace("container_misc_events_total", "container_misc_events"))
        for family in text_string_to_metric_families(scrape(view))
        for sample in family.samples
    ]


def scrape(view: NodeView) -> str:
    return b"".join(pieces(metrics(view))).decode()


def untold(scraped: str) -> list[str]:
    """What is wrong with a scrape: a family whose type is told twice or not at all, and a series given twice."""
    types = Counter(line.split()[2] for line in scraped.splitlines() if line.startswith("# TYPE "))
    found = list(text_string_to_metric_families(scraped))
    series = Counter((one.name, *sorted(one.labels.items())) for family in found for one in family.samples)
    return [
        *(f"the type of {name} {count} times" for name, count in types.items() if count > 1),
        *(f"no type of {family.name}" for family in found if family.type in ("unknown", "untyped")),
        *(f"{one} {count} times" for one, count in series.items() if count > 1),
    ]


def values(view: NodeView, name: str, **labels: str) -> list[float]:
    return [one.value for one in read(view) if one.name == name and labels.items() <= one.labels.items()]
