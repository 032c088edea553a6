"""Findings on the cold-plug socket: who is not pointed at it, and who is while nobody answers."""

from dataclasses import replace

import pytest

from nodeward.engine.show.doctor_cold_plug import cold_plug
from nodeward.model.doctor import ColdPlugFacts, VmFacts
from nodeward.model.sandboxes import Handler

SOCKET = "/run/nodeward/pod-resources.sock"
ASKS = Handler("kata", config="/etc/kata.toml", pod_resources=f"unix://{SOCKET}")
KUBELET = replace(ASKS, pod_resources="/var/lib/kubelet/pod-resources/kubelet.sock")
ON = ColdPlugFacts(True, SOCKET, True, True)


@pytest.mark.parametrize(
    ("handler", "facts", "found"),
    [
        pytest.param(ASKS, ON, {"cold-plug": "handlers that ask it: kata"}, id="well"),
        pytest.param(KUBELET, replace(ON, enabled=False, kube=False), {}, id="off"),
        pytest.param(
            *(ASKS, replace(ON, kube=False)),
            {"cold-plug-no-api": "refuses every pod with devices", "cold-plug": "handlers that ask it: kata"},
            id="no API server",
        ),
        pytest.param(KUBELET, ON, {"cold-plug-not-asked": "Kata asks /var/lib/kubelet/pod-res"}, id="asks kubelet"),
        pytest.param(replace(KUBELET, pod_resources=""), ON, {"cold-plug-not-asked": "asks nobody"}, id="asks nobody"),
        pytest.param(ASKS, replace(ON, listens=False), {"cold-plug-silent": "VMs do not boot"}, id="stale"),
        pytest.param(
            ASKS, ColdPlugFacts(False, SOCKET, False, False), {"cold-plug-silent": "without their devices"}, id="absent"
        ),
        pytest.param(ASKS, replace(ON, listens=None), {}, id="not seen"),
    ],
)
def test_what_is_said_of_the_socket(handler: Handler, facts: ColdPlugFacts, found: dict[str, str]) -> None:
    said = {one.code: one.what for one in cold_plug(VmFacts((handler,)), facts)}
    assert said.keys() == found.keys()
    assert all(words in said[code] for code, words in found.items())
