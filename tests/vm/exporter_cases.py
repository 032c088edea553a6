"""The exporter alone beside a real misc controller: settings, user and place of the cgroup tree as `deploy/exporter`
has them, and no other daemon. The tree is writable and the files of limits are the exporter's own user's here, so that
nothing but its settings keeps it from writing."""

import os
import signal
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final
from urllib.error import URLError
from urllib.request import urlopen

import yaml
from prometheus_client.parser import text_string_to_metric_families

from nodeward.wire import misc_files
from tests.vm.guest import REPOSITORY
from tests.vm.hook_node import BUNDLED, HookNode
from tests.vm.inside import CGROUPS, EPC, KIB, RESOURCE, charge, refused, until

_MANIFEST: Final = REPOSITORY / "deploy/exporter/settings.yaml"
_TREE: Final = Path("/host/sys/fs/cgroup")
_FOLDERS: Final = (Path("/var/lib/nodeward"), Path("/run/nodeward"))
_USER: Final = 65532
_FOREIGN: Final = 4 * KIB
"""A limit that nobody promised: a daemon that enforces would mend it."""


def exporter_alone(node: HookNode) -> list[str]:
    """What it says of a container that holds all it may and was refused more is what the kernel's files say; a limit
    that somebody else has changed it shows, and leaves."""
    charged, changed = node.crio.made["crio-new"].cgroup, node.crio.made["crio-old"].cgroup
    for pod, cgroup in (("crio-new", charged), ("crio-old", changed)):
        node.api.add(pod, {"app": {EPC: "8Ki"}}, ids={"app": cgroup.name.removeprefix("crio-")})
    held = charge(charged, 8 * KIB)
    why = refused(charged, KIB)
    with _exporter(node.api.url) as status:
        until(
            lambda: _kernel(charged).items() <= _of("crio-new").items(),
            "it says of crio-new/app what the kernel says",
            60,
        )
        said = _kernel(charged)
        before = _limits()
        for amount in (2 * _FOREIGN, _FOREIGN):
            before[changed / "misc.max"] = _written(changed, amount)
            _shows("crio-old", amount)
        assert _limits() == before
    os.close(held)
    assert status == [0], status
    return [
        f"exporter alone, user {_USER}, deploy/exporter's settings: crio-new/app (1 KiB more: {why}): {said}, as the "
        f"kernel's files; crio-old/app written to {_FOREIGN} by hand stays there, {len(before)} files as they were"
    ]


def _shows(pod: str, amount: int) -> None:
    shown = f"it shows {amount} as limit of {pod}/app"
    until(lambda: _of(pod).get("nodeward_misc_limit") == amount, shown, 30)


def _of(pod: str) -> dict[str, float]:
    """What /metrics says of the pod's container; nothing while nobody answers."""
    try:
        with urlopen("http://127.0.0.1:9743/metrics", timeout=60) as answer:
            families = text_string_to_metric_families(answer.read().decode())
    except (URLError, ConnectionError):
        return {}
    whose = {"pod": pod, "container": "app", "resource": RESOURCE}
    return {
        # the parser calls every counter `..._total`
        f"{one.name.removesuffix('_total')} {one.labels.get('scope', '')}".strip(): one.value
        for family in families
        for one in family.samples
        if whose.items() <= one.labels.items()
    }


def _kernel(cgroup: Path) -> dict[str, float]:
    """The same by the kernel's own files."""
    held, limit, peak = (
        misc_files.parse((cgroup / f"misc.{name}").read_bytes()) for name in ("current", "max", "peak")
    )
    events, local = (
        misc_files.parse((cgroup / name).read_bytes(), suffix=".max") for name in ("misc.events", "misc.events.local")
    )
    return {
        "nodeward_misc_usage": held[RESOURCE],
        "nodeward_misc_limit": limit[RESOURCE],
        "nodeward_misc_limited": 1,
        "nodeward_misc_peak": peak[RESOURCE],
        "nodeward_misc_refusals local": local[RESOURCE],
        "nodeward_misc_refusals subtree": events[RESOURCE],
        "container_misc_usage": held[RESOURCE],
        "container_misc_events": events[RESOURCE],
    }


def _written(cgroup: Path, amount: int) -> str:
    (cgroup / "misc.max").write_text(f"{RESOURCE} {amount}")
    return (cgroup / "misc.max").read_text()


def _limits() -> dict[Path, str]:
    """All that the daemon of a node writes."""
    names = ("misc.max", "cgroup.subtree_control")
    return {path: path.read_text() for name in names for path in CGROUPS.rglob(name)}


@contextmanager
def _exporter(url: str) -> Iterator[list[int]]:
    """It runs while the block does; afterwards the list has its exit status."""
    settings = Path("/run/exporter.yaml")
    settings.write_text(yaml.safe_load(_MANIFEST.read_text())["data"]["nodeward.yaml"])
    _TREE.mkdir(parents=True)
    subprocess.run(["mount", "--bind", str(CGROUPS), str(_TREE)], check=True, timeout=60)
    for folder in _FOLDERS:
        folder.mkdir(parents=True, exist_ok=True)
    for path in (*_FOLDERS, *_limits()):
        os.chown(path, _USER, _USER)
    privileges = ["--clear-groups", "--inh-caps=-all", "--bounding-set=-all", "--no-new-privs"]
    command = ["setpriv", f"--reuid={_USER}", f"--regid={_USER}", *privileges, str(BUNDLED / "nodeward"), "node"]
    command += ["--config", str(settings), "--set", f"kube.url={url}"]
    environment: Mapping[str, str] = {**os.environ, "NODE_NAME": "guest"}
    process = subprocess.Popen(command, env=environment)
    status: list[int] = []
    try:
        yield status
    finally:
        process.send_signal(signal.SIGTERM)
        status.append(process.wait(60))
        subprocess.run(["umount", str(_TREE)], check=True, timeout=60)
