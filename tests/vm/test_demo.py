"""docs/demo-vm.md, followed: every command of the page is typed at the console of `make demo-vm`, in its order.

A line of the page that begins with `demo# ` is typed; the lines below it must come, in this order, in what the command
prints (`...` stands for anything within a line, and blanks may be more or fewer). So the page cannot rot.
"""

import contextlib
import os
import pty
import re
import select
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import pytest

from tests.patience import patience
from tests.peers.find import require
from tests.told import tell
from tests.vm import guest
from tests.vm.chain_node import Node
from tests.vm.demo import __main__ as demo
from tests.vm.demo.node import HERE, RefusedError, answer, read

PAGE: Final = Path(__file__).resolve().parents[2] / "docs" / "demo-vm.md"
PROMPT: Final = "demo# "
BOOT_TIMEOUT_S: Final = 240.0
COMMAND_TIMEOUT_S: Final = 60.0
LOOKS: Final = ("nodeward ", "cat ")
"""A command that only looks is typed again, as a person does: the daemon reads once a second."""
LOOKED_AT_S: Final = 10.0
GO_ON: Final = ("nodeward status --watch -o wide",)


@dataclass(frozen=True, slots=True)
class Step:
    """One command, and the lines that the page shows of its output."""

    command: str
    shown: list[str] = field(default_factory=list)


def steps(page: str) -> list[Step]:
    """What the page's indented blocks have the reader type."""
    found: list[Step] = []
    for line in page.splitlines():
        if not line.startswith("    "):
            continue
        if line.strip().startswith(PROMPT):
            found.append(Step(line.strip().removeprefix(PROMPT)))
        elif found and line.strip() and not line.strip().startswith("make "):
            found[-1].shown.append(line.strip())
    return found


def lacking(shown: list[str], printed: str) -> list[str]:
    rest = iter(printed.splitlines())
    for number, line in enumerate(shown):
        pattern = r"\s+".join(re.escape(word).replace(r"\.\.\.", ".*") for word in line.split())
        if not any(re.fullmatch(rf"\s*{pattern}\s*", one) for one in rest):
            return shown[number:]
    return []


def plain(said: str) -> str:
    return re.sub(r"\x1b(\[[0-9;?]*[a-zA-Z]|c)", "", said).replace("\r", "")


class Console:
    def __init__(self) -> None:
        self._end, self._terminal = pty.openpty()
        line = [sys.executable, "-m", "tests.vm.demo"]
        environ = {**os.environ, "COLUMNS": "200", "LINES": "50"}
        self.process = subprocess.Popen(
            line, stdin=self._terminal, stdout=self._terminal, stderr=self._terminal, env=environ, cwd=guest.REPOSITORY
        )

    def until_prompt(self, timeout_s: float) -> str:
        return self.until(f"\n{PROMPT}", timeout_s).removesuffix(PROMPT)

    def until(self, last: str, timeout_s: float) -> str:
        """What is printed until these words stand at its end, or, of a line that goes on, have come."""
        end = time.monotonic() + timeout_s * patience()
        said = ""
        while not (plain(said).endswith(last) if last.endswith(PROMPT) else last in plain(said)):
            left = end - time.monotonic()
            assert left > 0, f"no {last!r} within {timeout_s * patience():.0f} s:\n{plain(said)[-3000:]}"
            said += self._read(left)
        return plain(said)

    def type(self, command: str) -> str:
        os.write(self._end, f"{command}\n".encode())
        return self.until_prompt(COMMAND_TIMEOUT_S).partition("\n")[2]

    def interrupt(self, command: str, shown: list[str]) -> str:
        """What a command prints that goes on until Ctrl-C, typed when the lines have come."""
        os.write(self._end, f"{command}\n".encode())
        end = time.monotonic() + COMMAND_TIMEOUT_S * patience()
        said = ""
        while lacking(shown, plain(said)) and time.monotonic() < end:
            said += self._read(0.2)
        os.write(self._end, b"\x03")
        return plain(said) + self.until_prompt(COMMAND_TIMEOUT_S)

    def follow(self, step: Step) -> str:
        """What the command of a step prints; typed again while it only looks and what is shown has not come."""
        if step.command in GO_ON:
            return self.interrupt(step.command, step.shown)
        end = time.monotonic() + LOOKED_AT_S * patience()
        printed = self.type(step.command)
        while step.command.startswith(LOOKS) and lacking(step.shown, printed) and time.monotonic() < end:
            time.sleep(0.5)
            printed = self.type(step.command)
        return printed

    def leave(self, keys: bytes = b"exit\n") -> tuple[int, str]:
        """The guest is left by these keys: the command's exit status, and what it still prints."""
        os.write(self._end, keys)
        end = time.monotonic() + COMMAND_TIMEOUT_S * patience()
        said = ""
        while self.process.poll() is None and time.monotonic() < end:
            said += self._read(0.2)
        return self.process.wait(1), said.replace("\r", "")

    def _read(self, within_s: float) -> str:
        ready, _, _ = select.select([self._end], [], [], max(within_s, 0))
        return os.read(self._end, 1 << 16).decode(errors="replace") if ready else ""

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait(60)
        for end in (self._end, self._terminal):
            os.close(end)


@contextlib.contextmanager
def console() -> Iterator[Console]:
    found = Console()
    try:
        yield found
    finally:
        found.close()


@pytest.mark.nightly
def test_a_new_user_follows_the_page() -> None:
    guest.needed(stock=True)
    require("containerd")
    page = steps(PAGE.read_text())
    assert len(page) > 15
    begin = time.monotonic()
    with console() as terminal:
        hello = terminal.until_prompt(BOOT_TIMEOUT_S)
        tell(f"demo-vm: the prompt after {time.monotonic() - begin:.1f} s")
        assert "nodeward status | top | explain" in hello, hello
        for step in page:
            printed = terminal.follow(step)
            tell(f"demo# {step.command}")
            for line in printed.splitlines():
                tell(f"    {line}")
            assert lacking(step.shown, printed) == [], printed
        status, last = terminal.leave()
    assert status == 0, last
    assert "guest: ends" in last


@pytest.mark.nightly
def test_ctrl_a_x_ends_it_at_once() -> None:
    guest.needed(stock=True)
    require("containerd")
    with console() as terminal:
        terminal.until("SeaBIOS", BOOT_TIMEOUT_S)
        status, last = terminal.leave(b"\x01x")
    assert status == 0, last
    assert "guest: ends" not in last


@pytest.mark.parametrize(
    "said",
    ["", "[]", "metadata: {name: a}", "metadata: {name: a}\nspec: {containers: [{}]}", "a: [", "metadata: 1\nspec: 2"],
)
def test_a_file_that_is_no_pod_is_told_to_the_person(said: str, tmp_path: Path) -> None:
    file = tmp_path / "pod.yaml"
    file.write_text(said)
    with pytest.raises(RefusedError, match=r"pod\.yaml: "):
        read(file)


@pytest.mark.parametrize("request_", ["", "pod", "pod create", "pod create a b", "pod run a", "daemon", "daemon stop"])
def test_other_words_than_those_of_the_shell_are_told_the_usage(request_: str) -> None:
    usage = "2usage: pod create FILE | pod delete NAME | daemon kill | daemon start"
    assert answer(object.__new__(Node), request_) == usage


def test_a_file_that_is_not_there_is_told_with_those_that_are(tmp_path: Path) -> None:
    assert answer(object.__new__(Node), f"pod create {tmp_path}/missing.yaml") == (
        f"1{tmp_path}/missing.yaml: cannot be read: No such file or directory; name the file of a pod, such as those "
        f"of {HERE}: keys.yaml, noted.yaml, web.yaml"
    )


@pytest.mark.parametrize("command", ["charge", "release"])
def test_a_command_without_its_words_tells_its_usage(command: str) -> None:
    done = subprocess.run([str(HERE / command)], capture_output=True, text=True, timeout=30, check=False)

    assert (done.returncode, done.stderr) == (2, "")
    assert done.stdout.startswith(f"usage: {command} POD/CONTAINER")


@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        pytest.param(["--help"], 0, "example: make demo-vm, then at its prompt: pod create web.yaml", id="help"),
        *(pytest.param([*words], 2, words[0], id=words[0]) for words in (("boot",), ("--fast",), ("-x", "y"))),
    ],
)
def test_help_and_unknown_words_are_answered_and_boot_nothing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], words: list[str], status: int, said: str
) -> None:
    monkeypatch.delattr(guest, "prepare")
    with pytest.raises(SystemExit) as ended:
        demo.main(words)
    printed = capsys.readouterr()

    assert ended.value.code == status
    assert said in " ".join((printed.err if status else printed.out).split())


def test_the_pods_of_the_demonstration_can_be_read() -> None:
    found = read(HERE / "web.yaml")
    assert found.containers == {"app": {"sgx.intel.com/epc": "12Ki"}, "side": {}}
    assert read(HERE / "noted.yaml").annotations == {"epc-limit.nri.io/container.app": "8192"}


@pytest.mark.parametrize(
    ("user", "ran", "out", "err"),
    [
        pytest.param(1000, [], "", "no guest kernel here; run as root: scripts/install-tools --demo", id="a user"),
        pytest.param(
            0,
            ["install-tools"],
            "demo-vm: no guest kernel here; running scripts/install-tools --demo, which takes minutes\n",
            "scripts/install-tools --demo ended with status 1",
            id="root",
        ),
    ],
)
def test_root_has_what_is_missing_installed_and_others_are_told_the_command(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], user: int, ran: list[str], out: str, err: str
) -> None:
    scripts: list[str] = []

    def missing(*, stock: bool) -> guest.Guest:
        assert stock
        raise guest.GuestMissingError("no guest kernel here")

    def run(line: list[str], **_: object) -> subprocess.CompletedProcess[str]:
        scripts.append(Path(line[0]).name)
        return subprocess.CompletedProcess(line, 1)

    monkeypatch.setattr(guest, "prepare", missing)
    monkeypatch.setattr(os, "geteuid", lambda: user)
    monkeypatch.setattr(subprocess, "run", run)
    assert demo.main([]) == 1
    said = capsys.readouterr()
    assert (scripts, said.out, said.err) == (ran, out, f"demo-vm: {err}\n")
