"""What a path on the host has, by a real kernel: mounted there, by way of a link too, or hidden from the daemon."""

import json
import os
import subprocess
import sys
from pathlib import Path

from tests.patience import scaled
from tests.peers.find import absent

READER = """
import json, sys
from nodeward.host.hostfs import OsFiles
from nodeward.features.podapi.effects.volumes import _at_paths
print(json.dumps({path: _at_paths(OsFiles(), (path,))[path] for path in sys.argv[1:]}))
"""
SCRIPT = 'mount -t proc proc /proc && mount -t tmpfs none "$1/real/mount" && shift && exec "$@"'
"""The shell is process 1 of a host of its own, and the reader takes its place."""


def seen(folder: Path, *names: str, as_root: tuple[str, ...] = ()) -> dict[str, object]:
    """What the daemon would learn of these paths below the folder."""
    paths = [str(folder / name) for name in names]
    reader = [*as_root, sys.executable, "-c", READER, *paths]
    script = SCRIPT.replace("exec ", "") if as_root else SCRIPT  # then process 1 keeps what the reader lacks
    unshare = ["unshare", "-m", "-p", "-f", "--kill-child", "--propagation", "private", "sh", "-c", script, "sh"]
    done = subprocess.run(
        [*unshare, str(folder), *reader], capture_output=True, text=True, timeout=scaled(60.0), check=True
    )
    found: dict[str, object] = json.loads(done.stdout)
    return {str(Path(path).relative_to(folder)): said for path, said in found.items()}


def test_a_mount_is_seen_where_it_is_and_by_a_link(tmp_path: Path) -> None:
    if os.geteuid() != 0:
        absent("mounts need root: run the tests as root")
    (tmp_path / "real/mount").mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "real")
    found = seen(tmp_path, "real", "real/mount", "link/mount", "real/new", "no/such")
    hidden = seen(tmp_path, "real/mount", as_root=("setpriv", "--bounding-set=-sys_ptrace", "--inh-caps=-sys_ptrace"))

    assert "sees nothing at its path" in str(found.pop("no/such"))
    assert found == {
        "real": [None, False], "real/mount": [None, True], "link/mount": [None, True], "real/new": [None, False]
    }  # fmt: skip
    assert "CAP_SYS_PTRACE is needed" in str(hidden["real/mount"])
