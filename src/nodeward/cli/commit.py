"""Finds the commit of this program: from `commit.txt`, which the build writes, or from git in a checkout.

Promises an answer within two seconds and never an error. The builds of wheel and bundle ask here as well, so this
module imports the standard library only.
"""

import subprocess
from pathlib import Path

_PACKAGE = Path(__file__).resolve().parent.parent
FILE = "commit.txt"
_MOST_CHARACTERS = 80
_ASK_S = 2.0


def commit() -> str:
    """Its whole name, and `-dirty` after it where files were changed since; empty where nobody knows."""
    try:
        with (_PACKAGE / FILE).open(encoding="ascii") as file:
            return file.read(_MOST_CHARACTERS).strip()
    except (OSError, UnicodeDecodeError):
        pass
    checkout = _PACKAGE.parent.parent
    if not (checkout / ".git").exists():
        return ""
    asked = ["git", "-C", str(checkout), "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"]
    try:
        done = subprocess.run(asked, capture_output=True, text=True, timeout=_ASK_S, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


def short(name: str) -> str:
    """The commit in the form that people read: twelve digits, and `-dirty`."""
    digits, mark, dirty = name.partition("-")
    return f"{digits[:12]}{mark}{dirty}"
