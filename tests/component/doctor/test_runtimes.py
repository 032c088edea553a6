"""What doctor finds of kubelet, relay, OCI hook and OCI runtimes, and what the daemon makes of `nri.multi_line`."""

import asyncio
import json
import logging
from dataclasses import replace
from pathlib import Path

import pytest

from nodeward.core.finding import Severity
from nodeward.features.settings import HookSection, NriSection, RelaySection, Settings
from nodeward.host.hostfs import OsFiles
from nodeward.neighbours.hook.install import Hook, base_spec, cdi, containerd_lines, hooks_d
from nodeward.people.doctor import machine
from nodeward.people.doctor.facts import KubeletFacts
from nodeward.people.doctor.kubelet import kubelet
from nodeward.people.doctor.run import diagnose
from nodeward.programs.node import oci_runtimes
from nodeward.programs.node.oci_runtimes import OciRuntimes
from tests.component.doctor.hosts import NO_API, around, bad, codes, host
from tests.component.relay.rig import call, client_of, people, relay_process, runtime_at, status_socket, wait_for

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


BY_HOOK = replace(NO_API, hook=HookSection(enabled=True), nri=NriSection(enabled=False))
HOOK = Hook("/opt/nodeward/bin/nodeward-oci-hook")
SPEC = b'{"ociVersion":"1.2.0","mounts":[],"hooks":{"createRuntime":[{"path":"/other","args":7}]}}'
BASE = "/etc/containerd/base.json"
USUAL = "/usr/share/containers/oci/hooks.d/50.json"
OTHER = "/etc/containers/oci/hooks.d/50.json"
NAMED = "/opt/hooks/50.json"
CRIO = "etc/crio/crio.conf.d/9.conf"
PODMAN = "etc/containers/containers.conf.d/9.conf"


def names(table: str, *places: str) -> str:
    return f"[{table}]\nhooks_dir = {[place.rpartition('/')[0] for place in places]}\n"


HOOKED: dict[str, tuple[str, dict[str, str | None]]] = {
    "hooks.d": (USUAL, {USUAL[1:]: hooks_d(HOOK).decode()}),
    "crio": (OTHER, {OTHER[1:]: hooks_d(HOOK).decode(), CRIO: names("crio.runtime", NAMED, OTHER)}),
    "podman": (NAMED, {NAMED[1:]: hooks_d(HOOK).decode(), PODMAN: names("engine", NAMED)}),
    "cdi": ("/etc/cdi/nodeward.json", {"etc/cdi/nodeward.json": cdi(HOOK).decode()}),
    "base-spec": (
        BASE,
        {BASE[1:]: base_spec(SPEC, HOOK).decode(), "etc/containerd/config.toml": containerd_lines(BASE, "runc", 3)},
    ),
    "imported-base-spec": (
        BASE,
        {
            BASE[1:]: base_spec(SPEC, HOOK).decode(),
            "etc/containerd/config.toml": 'imports = ["parts/first.toml", "conf.d/*.toml", 7, "/nowhere", "/n*/x"]\n',
            "etc/containerd/parts/first.toml": 'imports = ["../config.toml", "first.toml"]\n',
            "etc/containerd/conf.d/5-nodeward.toml": containerd_lines(BASE, "runc", 3),
        },
    ),
}


@pytest.mark.parametrize("way", HOOKED)
def test_the_oci_hook_is_found_where_it_is_installed(tmp_path: Path, way: str) -> None:
    place, files = HOOKED[way]
    there = files | {"run/nodeward/hook.sock": "", "etc/cdi/other.json": "{", "etc/cdi/list.json": "[[7]]"}
    found = diagnose(BY_HOOK, around(host(tmp_path, **there)))

    assert bad(found) == ["hook-program"], "it is named, and not there"
    assert (found.facts.hook.installed_in, found.facts.hook.missing) == ((place,), (HOOK.path,))
    found = diagnose(BY_HOOK, around(host(tmp_path, **there, **{HOOK.path[1:]: ""})))
    assert (bad(found), codes(found)["hook"]) == ([], Severity.OK)


def test_a_hook_that_is_wanted_and_nowhere_is_told(tmp_path: Path) -> None:
    assert set(bad(diagnose(BY_HOOK, around(host(tmp_path))))) == {"hook-not-installed", "hook-no-socket"}


@pytest.mark.parametrize(
    ("place", "settings"),
    [
        pytest.param(OTHER, {}, id="in-etc-by-default"),
        pytest.param(USUAL, {CRIO: names("crio.runtime", NAMED)}, id="another-is-named-instead"),
        pytest.param(USUAL, {CRIO: "[crio.runtime]\nhooks_dir = []\n"}, id="none-is-named"),
        pytest.param(
            OTHER,
            {"etc/crio/crio.conf": names("crio.runtime", OTHER), CRIO: names("crio.runtime", USUAL)},
            id="a-later-file-names-another",
        ),
        pytest.param(OTHER, {CRIO: '[crio.runtime]\nhooks_dir = ["etc", 7, "/a\\u0000b"]\n'}, id="nonsense-is-named"),
    ],
)
def test_a_hook_where_no_runtime_looks_is_told_as_such(tmp_path: Path, place: str, settings: dict[str, str]) -> None:
    files = host(tmp_path, **{place[1:]: hooks_d(HOOK).decode(), "run/nodeward/hook.sock": ""}, **settings)
    found = diagnose(BY_HOOK, around(files))

    assert bad(found) == ["hook-not-read"]
    assert [one.where for one in found.findings if one.code == "hook-not-read"] == [place]
    assert bad(diagnose(NO_API, around(files))) == [], "nobody wants it, and nobody calls it"


ASKED = replace(Settings(), nri=NriSection(multi_line=True))


def program(folder: Path, name: str, does: str) -> Path:
    made = folder / name
    made.write_text(f"#!/bin/sh\n{does}\n")
    made.chmod(0o755)
    return made


def on_path(folder: Path, *programs: Path) -> OsFiles:
    """A host whose containerd has handlers for these programs, and no others in the usual folders."""
    config = folder / "root/etc/containerd/config.toml"
    config.parent.mkdir(parents=True, exist_ok=True)
    table = "plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes"
    config.write_text("".join(f"[{table}.h{n}.options]\nBinaryName = '{one}'\n" for n, one in enumerate(programs)))
    for one in programs:
        seen = folder / "root" / one.relative_to("/")
        seen.parent.mkdir(parents=True, exist_ok=True)
        seen.write_text("")
    return OsFiles(str(folder / "root"))


OUTCOMES = {
    "all are new": (("echo runc version 1.5.2", "echo crun version 1.21"), True, "on", "runc 1.5.2, crun 1.21"),
    "one is old": (("echo runc version 1.5.2", "echo runc version 1.1.5"), False, "held", "runc 1.1.5 cannot write"),
    "none is there": ((), True, "unverified", "neither runc nor crun was found"),
    "one says nothing": (("echo runc version 1.5.2", "exit 1"), False, "held", "/"),
}


@pytest.mark.parametrize(("does", "joins", "state", "why"), OUTCOMES.values(), ids=OUTCOMES)
def test_lines_are_joined_unless_a_program_says_that_it_is_too_old(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, does: tuple[str, ...], joins: bool, state: str, why: str
) -> None:
    caplog.set_level(logging.INFO)
    files = on_path(tmp_path, *(program(tmp_path, f"p{number}", one) for number, one in enumerate(does)))
    asked = OciRuntimes(ASKED, files)

    assert [asyncio.run(asked.joins()) for _ in range(2)] == [joins, joins]
    assert asked.row.state == state
    assert asked.row.why.startswith(why)
    told = [record for record in caplog.records if record.name == oci_runtimes.__name__]
    assert [record.getMessage() for record in told] == [asked.row.text]  # once, though it was asked twice
    assert told[0].levelno == (logging.INFO if state == "on" else logging.WARNING)


def test_after_an_upgrade_lines_are_joined_at_the_next_connection(tmp_path: Path) -> None:
    runc = program(tmp_path, "runc", "echo runc version 1.1.5")
    asked = OciRuntimes(ASKED, on_path(tmp_path, runc))

    assert asyncio.run(asked.joins()) is False
    program(tmp_path, "runc", "echo runc version 1.2.0")
    assert asyncio.run(asked.joins()) is True
    assert asked.row.state == "on"


def test_nobody_is_asked_where_the_setting_is_off(tmp_path: Path) -> None:
    asked = OciRuntimes(Settings(), on_path(tmp_path, program(tmp_path, "runc", f"touch {tmp_path}/ran")))

    assert asyncio.run(asked.joins()) is False
    assert asked.row.state == "off"
    assert not (tmp_path / "ran").exists()


def test_programs_that_hang_hold_nobody_up_for_long(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(oci_runtimes, "LOOK_S", 0.05)
    monkeypatch.setattr(machine, "RUN_S", 0.3)
    files = on_path(tmp_path, *(program(tmp_path, f"p{number}", "exec sleep 60") for number in range(2)))
    asked = OciRuntimes(ASKED, files)

    assert asyncio.run(asked.joins()) is False
    assert asked.row.state == "held"
    assert "did not tell their versions within" in asked.row.why
