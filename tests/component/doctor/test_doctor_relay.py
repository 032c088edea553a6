"""`nodeward doctor` beside a relay that runs, and on hosts with a kubelet, made of plain folders."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from nodeward.app.doctor.kubelet import kubelet
from nodeward.app.doctor.run import diagnose
from nodeward.cli import client
from nodeward.model.doctor import KubeletFacts
from nodeward.model.settings import NriSection, RelaySection
from nodeward.model.view import RelayView
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


WELL = ("relay", "ok", "the relay answers, and has passed 1 calls")
UNSEEN = "PullImage and all other image calls are neither counted nor dumped"
BESIDE: dict[str, tuple[tuple[str, ...], list[tuple[str, str, str]]]] = {
    "asks-the-relay": (("--container-runtime-endpoint=unix://{listen}",), [WELL]),
    "asks-another-for-images": (
        ("--container-runtime-endpoint=unix://{listen}", "--image-service-endpoint=unix:///run/images.sock"),
        [
            (
                "relay-images-unseen",
                "warning",
                f"kubelet asks /run/images.sock for images, past the relay: {UNSEEN}",
            )
        ],
    ),
    "asks-another": (
        ("--container-runtime-endpoint=unix:///run/crio/crio.sock",),
        [
            (
                "relay-not-used",
                "warning",
                "kubelet's runtime endpoint is /run/crio/crio.sock, not the relay's: nothing of kubelet's passes here",
            )
        ],
    ),
    "is-not-seen": (
        (),
        [
            (
                "relay-images-unseen",
                "note",
                "no image call has passed the relay yet; if kubelet's image service is another socket, " + UNSEEN,
            ),
            WELL,
        ],
    ),
}
"""The flags of a kubelet, and what is found beside a relay that one call has passed."""


def test_a_kubelet_beside_the_relay_that_runs_is_told_what_goes_past_it(tmp_path: Path) -> None:
    """Given hosts made of plain folders, and the answers of one relay that runs."""
    listen, behind = tmp_path / "cri.sock", tmp_path / "runtime.sock"
    with runtime_at(behind), relay_process(listen, behind), client_of(listen) as channel:
        wait_for(status_socket(listen).is_socket, "relay.sock")
        call(channel, "Version", b"v")

        def heard() -> RelayView | str:
            said = client.relay(str(status_socket(listen)))
            return said.view or said.fault

        def found(name: str) -> list[tuple[str, str, str]]:
            words = [word.format(listen=listen) for word in BESIDE[name][0]]
            files = host(tmp_path / name, **(running(*words) if words else {}))
            told = diagnose(NO_API, replace(around(files), relay=heard)).findings
            return [(one.code, one.severity.value, one.what) for one in told if one.code.startswith("relay")]

        assert {name: found(name) for name in BESIDE} == {name: wanted for name, (_, wanted) in BESIDE.items()}
