"""The OCI runtimes that the distribution has: older than what writes `misc.max` line by line.

They are called by their full paths, so that nothing else on this machine begins to use them. The packages belong to the
machine and change with its release, so a test that is about an old one asks for the version as well.
"""

import shutil
import subprocess
from pathlib import Path

from nodeward.people.doctor.findings import MULTI_LINE, version
from tests.patience import scaled
from tests.peers.find import absent

_FOLDERS = "/usr/sbin:/usr/bin"


def require_old(program: str) -> Path:
    """The distribution's runc or crun; the calling test skips where there is none that writes a value at once."""
    since = ".".join(str(part) for part in MULTI_LINE[program])
    place = require_packaged(program)
    said = subprocess.run([place, "--version"], capture_output=True, text=True, timeout=scaled(30), check=True).stdout
    if version(said) >= MULTI_LINE[program]:
        absent(f"{place} writes misc.max line by line ({program} {since} or newer); Debian 12 has an older one")
    return place


def require_packaged(program: str) -> Path:
    """The distribution's runc or crun, of whatever version."""
    place = shutil.which(program, path=_FOLDERS)
    if place is None:
        absent(f"no {program} in {_FOLDERS}: run scripts/install-tools")
    return Path(place)
