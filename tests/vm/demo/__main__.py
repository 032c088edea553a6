"""Starts the virtual machine of the demonstration on this terminal, and first installs what it needs and is not there.

Run by `make demo-vm`. Nothing of this machine is changed but by the project's own scripts, and each is named before it
runs. The terminal's settings are put back whatever ends the guest.
"""

import argparse
import contextlib
import os
import shutil
import subprocess
import sys
import termios
from collections.abc import Iterator, Sequence
from typing import Final

from tests.peers.find import peer
from tests.peers.recipes import cache_folder
from tests.vm import guest
from tests.vm.chains import CAPACITY
from tests.vm.guest import REPOSITORY, GuestMissingError, Machine

_TOOLS: Final = ("scripts/install-tools", "--demo")
_BUILD: Final = ("scripts/build-peers", "containerd")
_MACHINE: Final = Machine(serial="mon:stdio")


def main(words: Sequence[str]) -> int:
    _usage().parse_args(words)
    try:
        ready = _prepared()
    except GuestMissingError as missing:
        print(f"demo-vm: {missing}", file=sys.stderr)
        return 1
    size = shutil.get_terminal_size()
    words = (str(cache_folder().parent.parent), str(size.lines), str(size.columns))
    program = (sys.executable, "-m", "tests.vm.demo.node", *words)
    print(f"A Linux {ready.release} boots in QEMU without hardware support, which takes some time. It reads this")
    print("machine's files, and nothing that it writes reaches them. Ctrl-A X ends it at once.", flush=True)
    with _terminal_put_back():
        return subprocess.call(guest.command(ready, program, CAPACITY, _MACHINE))


def _usage() -> argparse.ArgumentParser:
    return argparse.ArgumentParser(
        prog="python -m tests.vm.demo",
        description="Boots a node in a virtual machine, with a real containerd, runc, misc controller and daemon, and "
        "gives a shell. What is missing is installed first, by the project's scripts.",
        epilog="example: make demo-vm, then at its prompt: pod create web.yaml. docs/demo-vm.md is the page to follow; "
        "exit, or Ctrl-A X, ends it.",
    )


def _prepared() -> guest.Guest:
    """The guest, after the scripts have brought what was missing; GuestMissingError where they cannot."""
    try:
        ready = guest.prepare(stock=True)
    except GuestMissingError as missing:
        _run(_TOOLS, str(missing))
        ready = guest.prepare(stock=True)
    if peer("containerd") is None:
        _run(_BUILD, "containerd and runc are not built")
    if peer("containerd") is None:
        raise GuestMissingError(f"containerd and runc are not there after {' '.join(_BUILD)}")
    return ready


def _run(script: tuple[str, ...], why: str) -> None:
    line = " ".join(script)
    if os.geteuid() != 0:
        raise GuestMissingError(f"{why}; run as root: {line}")
    print(f"demo-vm: {why}; running {line}, which takes minutes", flush=True)
    done = subprocess.run([str(REPOSITORY / script[0]), *script[1:]], check=False, cwd=REPOSITORY)
    if done.returncode:
        raise GuestMissingError(f"{line} ended with status {done.returncode}")


@contextlib.contextmanager
def _terminal_put_back() -> Iterator[None]:
    """QEMU makes the terminal raw, and leaves it so when it is killed."""
    if not sys.stdin.isatty():
        yield
        return
    before = termios.tcgetattr(sys.stdin)
    try:
        yield
    finally:
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, before)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
