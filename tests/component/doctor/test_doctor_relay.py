"""`nodeward doctor` beside a relay that runs, and on hosts with a kubelet, made of plain folders."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from nodeward.app.doctor.kubelet import kubelet
from nodeward.app.doctor.run import diagnose
from nodeward.model.doctor import KubeletFacts
from nodeward.model.settings import NriSection, RelaySection
from tests.component.doctor.hosts import NO_API, around, host
from tests.component.relay.rig import call, client_of, relay_process, runtime_at, wait_for
from tests.component.relay.test_status import people, status_socket

RELAY = "/run/nodeward/cri.sock"
COMM = "proc/4711/comm"
CMDLINE = "proc/4711/cmdline"
CONFIG = "kind: KubeletConfiguration\ncontainerRuntimeEndpoint: unix:///run/crio/crio.sock\n"


def running(*words: str) -> dict[str, str | None]:
    return {COMM: "kubelet\n", CMDLINE: "\0".join(("/usr/bin/kubelet", *words)) + "\0"}


KUBELETS: dict[str, tuple[dict[str, str | None], tuple[str, str, str]]] = {
    "none": ({}, ("", "", "")),
    "file-alone": (
        {"var/lib/kubelet/config.yaml": CONFIG},
        ("/var/lib/kubelet/config.yaml", "/run/crio/crio.sock", "/run/crio/crio.sock"),
    ),
    "nothing-said": (running(), ("process 4711", "/run/containerd/containerd.sock", "/run/containerd/containerd.sock")),
    "file-named": (
        {**running("--config", "/etc/k.yaml"), "etc/k.yaml": CONFIG + "imageServiceEndpoint: unix:///var/run/i.sock\n"},
        ("process 4711, /etc/k.yaml", "/run/crio/crio.sock", "/run/i.sock"),
    ),
    "folder-over-file": (
        {
            **running("--config=/etc/k.yaml", "--config-dir=/etc/k.d"),
            "etc/k.yaml": CONFIG,
            "etc/k.d/20-relay.conf": f"containerRuntimeEndpoint: unix://{RELAY}\n",
            "etc/k.d/10-other.conf": "containerRuntimeEndpoint: unix:///run/other.sock\n",
            "etc/k.d/30-notes.txt": "containerRuntimeEndpoint: unix:///run/never.sock\n",
        },
        ("process 4711, /etc/k.yaml, /etc/k.d/10-other.conf, /etc/k.d/20-relay.conf", RELAY, RELAY),
    ),
    "flag-over-file": (
        {**running("--config=/etc/k.yaml", f"--container-runtime-endpoint=unix://{RELAY}"), "etc/k.yaml": CONFIG},
        ("process 4711, /etc/k.yaml", RELAY, RELAY),
    ),
    "file-is-nonsense": (
        {**running("--config=/etc/k.yaml"), "etc/k.yaml": "[: {"},
        ("process 4711", "/run/containerd/containerd.sock", "/run/containerd/containerd.sock"),
    ),
    "flag-without-value": (
        running("--container-runtime-endpoint"),
        ("process 4711", "/run/containerd/containerd.sock", "/run/containerd/containerd.sock"),
    ),
}


@pytest.mark.parametrize("name", KUBELETS)
def test_the_sockets_of_kubelet_are_found(tmp_path: Path, name: str) -> None:
    files, facts = KUBELETS[name]

    assert kubelet(host(tmp_path, **files)) == KubeletFacts(*facts)


def test_a_kubelet_at_the_relay_without_a_relay_is_an_error(tmp_path: Path) -> None:
    settings = replace(NO_API, nri=NriSection(enabled=False), relay=RelaySection(listen=RELAY, limits=True))
    files = host(tmp_path, **running(f"--container-runtime-endpoint=unix://{RELAY}"))

    found = diagnose(settings, around(files))

    assert [(one.code, one.severity.value) for one in found.findings if one.code.startswith("relay")] == [
        ("relay-away", "error")
    ]


def test_doctor_asks_the_relay_that_runs(tmp_path: Path) -> None:
    """Given a relay whose runtime went away, then doctor, run as a person runs it, says so. What it says of one that is
    well depends on whether this machine has a kubelet."""
    listen, behind = tmp_path / "cri.sock", tmp_path / "runtime.sock"
    words = ("doctor", "-o", "json", "--set", "kube.enabled=false", "--set", f"relay.listen={listen}")

    def codes() -> dict[str, str]:
        told = json.loads(people(listen, *words).stdout)["findings"]
        return {one["code"]: one["what"] for one in told if one["code"].startswith("relay")}

    before = codes()
    with relay_process(listen, behind):
        wait_for(status_socket(listen).is_socket, "relay.sock")
        with runtime_at(behind), client_of(listen) as channel:
            call(channel, "Version", b"v")
            well = codes()
        with client_of(listen) as channel:
            with pytest.raises(Exception, match="UNAVAILABLE"):
                call(channel, "Version", timeout_s=2.0)
            away = codes()

    assert before == {"relay": "no relay is wanted, and none answers"}
    assert well.keys() & {"relay", "relay-not-used", "relay-images-unseen"}
    assert "relay-runtime-absent" not in well
    assert str(behind) in away["relay-runtime-absent"]
    assert "relay" not in away
