"""Of which commit this program is: written at the build (`commit.txt` in the package), or git's word in a checkout."""

import subprocess
from pathlib import Path

_PACKAGE = Path(__file__).resolve().parent.parent
FILE = "commit.txt"
DIGITS = 12
_ASK_S = 2.0


def commit() -> str:
    """Its first digits; empty where nobody knows."""
    try:
        return (_PACKAGE / FILE).read_text(encoding="ascii").strip()[:DIGITS]
    except (OSError, UnicodeDecodeError):
        pass
    checkout = _PACKAGE.parent.parent
    if not (checkout / ".git").exists():
        return ""
    asked = ["git", "-C", str(checkout), "rev-parse", f"--short={DIGITS}", "HEAD"]
    try:
        done = subprocess.run(asked, capture_output=True, text=True, timeout=_ASK_S, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""
