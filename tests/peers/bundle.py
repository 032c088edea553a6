"""The folder of `make bundle` and the image of `make image`: built once for a checkout, and again when it changes."""

import shutil
import subprocess
import sys
from pathlib import Path

from tests.peers.find import absent

_ROOT = Path(__file__).resolve().parents[2]
_BUILD_S = 600.0


def require_bundle() -> Path:
    """The finished folder; the calling test skips where PyInstaller's tools are not there."""
    if missing := [tool for tool in ("objdump", "objcopy", "ldd") if shutil.which(tool) is None]:
        absent(f"no {', '.join(missing)} here, which PyInstaller needs: run scripts/install-tools")
    return _built("build-bundle")


def require_image() -> Path:
    require_bundle()
    return _built("build-image")


def _built(script: str) -> Path:
    command = [sys.executable, "-W", "ignore", f"scripts/{script}"]
    done = subprocess.run(command, cwd=_ROOT, capture_output=True, text=True, timeout=_BUILD_S, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    print(done.stdout, end="")
    return Path(done.stdout.partition(": ")[0])
