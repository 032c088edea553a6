"""What `nodeward doctor` finds of the OCI hook, on hosts made of plain folders."""

from dataclasses import replace
from pathlib import Path

import pytest

from nodeward.app.doctor import diagnose
from nodeward.model.doctor import Severity
from nodeward.model.settings import HookSection, NriSection
from nodeward.wire.hook_install import Hook, base_spec, cdi, containerd_lines, hooks_d
from tests.component.doctor.hosts import NO_API, around, bad, codes, host

BY_HOOK = replace(NO_API, hook=HookSection(enabled=True), nri=NriSection(enabled=False))
HOOK = Hook("/opt/nodeward/bin/nodeward-oci-hook")
SPEC = b'{"ociVersion":"1.2.0","mounts":[],"hooks":{"createRuntime":[{"path":"/other","args":7}]}}'
BASE = "/etc/containerd/base.json"
HOOKED: dict[str, tuple[str, dict[str, str | None]]] = {
    "hooks.d": ("/etc/containers/oci/hooks.d/50.json", {"etc/containers/oci/hooks.d/50.json": hooks_d(HOOK).decode()}),
    "cdi": ("/etc/cdi/nodeward.json", {"etc/cdi/nodeward.json": cdi(HOOK).decode()}),
    "base-spec": (
        BASE,
        {BASE[1:]: base_spec(SPEC, HOOK).decode(), "etc/containerd/config.toml": containerd_lines(BASE, "runc", 3)},
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


def test_a_node_with_nri_alone_lacks_no_hook(tmp_path: Path) -> None:
    found = diagnose(NO_API, around(host(tmp_path)))

    assert (bad(found), codes(found)["hook"]) == ([], Severity.OK)
