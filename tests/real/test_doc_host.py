"""What the pages have a host do is done, where Nodeward is installed by them, with a real containerd and API server.

systemd's commands are run in a guest (`tests/vm/units_cases.py`), Helm's at an API server (`test_chart.py`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.pages import FOUND, Command, of_page, taken
from tests.peers.bundle import require_bundle, require_image
from tests.peers.containerd import running_containerd
from tests.peers.find import require
from tests.real.page_host import Host, a_cluster, running_host

LASTING = {
    r"nodeward relay|cri-resmgr ": "relaying",
    r"nodeward webhook|cri-resmgr-webhook": "serving",
    r"nodeward node": "component=nri ready=yes",
    r"nodeward page": "http://",
}
"""Commands that go on, and what they say once they are ready."""
CHANGING = (
    r"cp |rm |mkdir |ctr |ssh ",
    r"nodeward (hook|volume|network|config check|doctor|uninstall)",
)
GIVEN = {
    r" \.\.\.$": " --set kube.kubeconfig=/etc/kubernetes/agent.conf --set node_name=node-1",
    r"/tmp/cri.dump": "/var/log/nodeward/cri.dump",
    r"\bPATH\b": "/var/lib/kubelet/pods/u/volumes/kubernetes.io~csi/data/mount",
    r"\bSANDBOX\b": "s1",
    r"ssh -L": "ssh -G -L",
}
"""What a reader puts in the place of the page's words."""
TAKEN = tuple(taken())
HOSTED = [
    one for one in FOUND if one.text not in TAKEN and any(re.match(name, one.text) for name in (*LASTING, *CHANGING))
]
TAP = {"type": "host-tap", "tap_name": "tap0"}
DAN = {"devices": [{"name": "eth0", "device": TAP, "network_info": {"interface": {"ip_addresses": ["10.0.0.5/24"]}}}]}
LAST = ("nodeward uninstall", "rm ")
"""Begins of commands that take away what the others need, in the order in which they are run."""


@pytest.fixture(name="host", scope="module")
def _host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    require_bundle()
    require_image()
    peers = tuple(require(name) / "bin" for name in ("helm", "containerd"))
    with (
        TemporaryDirectory(prefix="ctd") as place,
        running_containerd(Path(place)) as containerd,
        a_cluster() as config,
        running_host(tmp_path_factory.mktemp("host"), containerd, peers) as host,
    ):
        host.done(f"mkdir -p /etc/kubernetes && cp {config} /etc/kubernetes/agent.conf")
        host.done(of_page("webhook.md", "deploy/webhook/make-certificate"))
        host.done(of_page("webhook.md", "for part in crt key"))
        certificates = "/etc/cri-resmgr-webhook/certs.d"
        copies = "".join(f" && cp certificate/tls.{one} {certificates}/svc.{one}" for one in ("crt", "key"))
        host.done(f"mkdir -p {certificates}{copies}")
        (host.checkout / "dan.json").write_text(json.dumps(DAN))
        yield host


def ordered() -> list[Command]:
    """Each once: what installs first, what takes away last."""
    each = {one.text: one for one in HOSTED}

    def place(one: Command) -> tuple[int, bool]:
        last = next((number for number, start in enumerate(LAST, 1) if one.text.startswith(start)), 0)
        return last, one.page != "install.md"

    return sorted(each.values(), key=place)


def test_the_page_of_the_webhook_asks_it_by_hand(host: Host) -> None:
    serves = of_page("webhook.md", "nodeward webhook --set webhook.port=0")
    with host.lasting(serves, "serving") as line:
        port = re.findall(r"[:=](\d+)\b", line)
        assert port, line
        host_name = "nodeward-webhook.nodeward-system.svc"
        said = host.done(f"port={port[-1]} host={host_name}\n{of_page('webhook.md', 'curl --cacert')}")
    assert '"allowed":false' in said


def test_the_page_of_the_agent_has_it_tell_the_relay(host: Host) -> None:
    relay = of_page("agent.md", "cri-resmgr -runtime-socket")
    agent = of_page("agent.md", "NODE_NAME=node-1 nodeward agent")
    with host.lasting(relay, "serving"), host.lasting(agent, r"configmap=\S+ accepted"):
        host.done(of_page("agent.md", "cri-resmgr-agent-probe"))


@pytest.mark.parametrize("command", ordered(), ids=str)
def test_what_a_page_has_a_host_do_is_done(command: Command, host: Host) -> None:
    """In the order of the pages; what takes Nodeward away comes last."""
    text = command.text
    for name, value in GIVEN.items():
        text = re.sub(name, value, text)
    text = text.replace("dist/nodeward-VERSION-MACHINE-HASH", str(require_bundle()))
    if text.startswith("rm -r "):  # what another page has removed already is put there first
        host.done(f"for one in {text.removeprefix('rm -r ')}; do [ -e $one ] || mkdir -p $one; done")
    says = next((word for name, word in LASTING.items() if re.match(name, command.text)), None)
    if says is not None:
        with host.lasting(text, says):
            pass
    else:
        code, said = host.run(text)
        found = text.startswith("nodeward doctor") and "Usage:" not in said  # it exits by what it finds
        assert code in ((0, 1, 2) if found else (0,)), f"{text}: {said[-3000:]}"
