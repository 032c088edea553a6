"""What `nodeward doctor` finds of the OCI hook, on hosts made of plain folders."""

from dataclasses import replace
from pathlib import Path

import pytest

from nodeward.app.doctor.run import diagnose
from nodeward.model.doctor import Severity
from nodeward.model.settings import HookSection, NriSection
from nodeward.wire.hook_install import Hook, base_spec, cdi, containerd_lines, hooks_d
from tests.component.doctor.hosts import NO_API, around, bad, codes, host

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
    """Settings that name the folders of these files."""
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


def test_a_node_with_nri_alone_lacks_no_hook(tmp_path: Path) -> None:
    found = diagnose(NO_API, around(host(tmp_path)))

    assert (bad(found), codes(found)["hook"]) == ([], Severity.OK)
