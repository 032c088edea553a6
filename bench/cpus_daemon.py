"""`nodeward` on a machine of files: `python -m bench.cpus_daemon MACHINE ARGUMENT ...`

Runs in a mount namespace of its own. It sees `MACHINE/sys/devices/system` in the place of the real folder. Ordinary
files keep what a shorter text does not cover, which cgroup files do not: so a set's file is truncated by the write.
"""

import os
import subprocess
import sys

from nodeward.cli.main import cli
from nodeward.host.hostfs import OsFiles

_SYSTEM = "sys/devices/system"


def shorter_sets() -> None:
    """Has sets written as a kernel takes them."""
    write = OsFiles.write

    def written(files: OsFiles, path: str, data: bytes) -> None:
        if path.endswith("/cpuset.cpus"):
            os.truncate(path, 0)
        write(files, path, data)

    for name, taken in (("write", written),):
        setattr(OsFiles, name, taken)


if __name__ == "__main__":
    machine, *arguments = sys.argv[1:]
    subprocess.run(["mount", "--bind", f"{machine}/{_SYSTEM}", f"/{_SYSTEM}"], check=True)
    shorter_sets()
    cli(arguments, prog_name="nodeward")
