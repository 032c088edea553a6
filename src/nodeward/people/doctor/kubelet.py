"""Finds out which sockets kubelet uses, from its flags and its KubeletConfiguration.

Flags go before the file, and the files of its `--config-dir` go before that, in their order, as kubelet takes them.
Without a kubelet that is seen running the usual file is a hint. A file that cannot be read says nothing.
"""

from collections.abc import Mapping
from contextlib import suppress

import yaml

from nodeward.host.hostfs import HostFiles
from nodeward.neighbours.formats.yaml_faults import YAML_FAULTS
from nodeward.people.doctor.facts import KubeletFacts
from nodeward.people.doctor.machine import LARGE, SMALL, processes
from nodeward.people.doctor.relay_findings import plain

USUAL = "/var/lib/kubelet/config.yaml"
DEFAULT = "/run/containerd/containerd.sock"
"""kubelet's own, where nothing is said."""
MOST_FILES = 100
_RUNTIME, _IMAGES = "containerRuntimeEndpoint", "imageServiceEndpoint"
_FLAGS = {"container-runtime-endpoint": _RUNTIME, "image-service-endpoint": _IMAGES}


def kubelet(files: HostFiles) -> KubeletFacts:
    """The sockets, as plain paths; where nothing is said of images, they are asked of the runtime."""
    pid = next((pid for pid, name in processes(files) if name == "kubelet"), "")
    flags = _flags(files, pid) if pid else {}
    paths = [flags["config"]] if "config" in flags else [] if pid else [USUAL]
    if "config-dir" in flags:
        with suppress(OSError):
            names = [name for name in files.listdir(flags["config-dir"]) if name.endswith(".conf")]
            paths += [f"{flags['config-dir']}/{name}" for name in names[:MOST_FILES]]
    told: dict[str, str] = {}
    read = [path for path in paths if _take(files, path, told)]
    told |= {_FLAGS[name]: text for name, text in flags.items() if name in _FLAGS and text}
    if not pid and not read:
        return KubeletFacts()
    runtime = plain(told.get(_RUNTIME) or DEFAULT)
    seen_at = [f"process {pid}", *read] if pid else read
    return KubeletFacts(", ".join(seen_at), runtime, plain(told.get(_IMAGES) or runtime))


def _flags(files: HostFiles, pid: str) -> Mapping[str, str]:
    """The flags that say something here: `--name=value` and `--name value`."""
    try:
        words = files.read(f"/proc/{pid}/cmdline", SMALL).decode("utf-8", "replace").split("\0")
    except OSError:
        return {}
    found: dict[str, str] = {}
    for place, word in enumerate(words):
        name, is_whole, value = word.lstrip("-").partition("=")
        if word.startswith("-") and name in (*_FLAGS, "config", "config-dir"):
            found[name] = value if is_whole else "".join(words[place + 1 : place + 2])
    return found


def _take(files: HostFiles, path: str, told: dict[str, str]) -> bool:
    """Adds what the file says; whether it could be read."""
    try:
        tree: object = yaml.safe_load(files.read(path, LARGE).decode("utf-8", "replace"))
    except (OSError, *YAML_FAULTS):
        return False
    if not isinstance(tree, dict):
        return False
    for name in (_RUNTIME, _IMAGES):
        text = tree.get(name)
        if isinstance(text, str) and text:
            told[name] = text
    return True
