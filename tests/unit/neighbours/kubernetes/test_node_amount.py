"""The number in a node's status: whose it is by who wrote it last, and when it is written or taken out."""

import asyncio
import json
from collections.abc import Mapping

import pytest

from nodeward.core.decision import Special
from nodeward.host.clock import SystemClock
from nodeward.neighbours.kubernetes.node_amount import AmountClient, RivalError
from nodeward.neighbours.kubernetes.owned import Found, Owned
from nodeward.neighbours.kubernetes.settings import KubeSettings
from nodeward.neighbours.sockets.kube_http import Endpoint

RESOURCE, SIZE = "sgx.intel.com/epc", 4096
BEATS: Mapping[str, object] = {"f:status": {"f:conditions": {'k:{"type":"Ready"}': {"f:lastHeartbeatTime": {}}}}}
WRITES: Mapping[str, object] = {"f:status": {"f:capacity": {f"f:{RESOURCE}": {}}}}


class Client(AmountClient):
    """Of a node whose number this writer wrote last."""

    def __init__(self, amount: str, writer: str, cares: bool) -> None:
        settings = KubeSettings(endpoint=Endpoint("http://127.0.0.1:1"), node_name="n")
        super().__init__(RESOURCE, settings, "set it to false", SystemClock(), lambda: cares)
        managed = [{"manager": "kubelet", "fieldsV1": BEATS}]
        managed += [{"manager": writer, "fieldsV1": WRITES}] if writer else []
        capacity = {RESOURCE: amount} if amount else {}
        metadata = {"uid": "u", "resourceVersion": "1", "managedFields": managed}
        self.node = json.dumps({"metadata": metadata, "status": {"capacity": capacity}}).encode()
        self.sent: list[str | None] = []

    async def look(self) -> Found:
        return self._found(self.node)

    async def _patch(self, amount: str | None) -> None:
        self.sent.append(amount)


def played(client: Client, wanted: int | Special) -> list[str | None]:
    async def run() -> None:
        owned = Owned(client, lambda: wanted, lambda: None, SystemClock(), lambda *_: None)
        await owned._round(wanted)
        await client.aclose()

    asyncio.run(run())
    return client.sent


@pytest.mark.parametrize(
    ("amount", "writer", "sent"),
    [
        ("", "", ["4096"]),
        ("0", "kubelet", ["4096"]),
        ("0", "nfd-master", ["4096"]),
        ("8192", "nodeward", ["4096"]),
        ("8192", "", ["4096"]),
        ("4096", "nodeward", []),
        ("4096", "nfd-master", []),
        ("4Ki", "kubelet", []),
        ("4096", "", []),
    ],
)
def test_what_is_wanted_is_written_if_the_node_has_another(amount: str, writer: str, sent: list[str | None]) -> None:
    assert played(Client(amount, writer, cares=True), SIZE) == sent


def test_another_programs_number_is_left_and_told_with_the_way_out() -> None:
    client = Client("8192", "nfd-master", cares=True)
    with pytest.raises(RivalError, match=r"is 8192 by nfd-master, .* kubectl patch node n --subresource=status"):
        played(client, SIZE)
    assert client.sent == []


@pytest.mark.parametrize(("writer", "sent"), [("nodeward", [None]), ("nfd-master", []), ("kubelet", []), ("", [])])
def test_only_what_we_wrote_is_taken_out(writer: str, sent: list[str | None]) -> None:
    assert played(Client("4096", writer, cares=False), Special.ABSENT) == sent
