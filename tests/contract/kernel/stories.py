"""The kernel's cases that are told step by step: `stories.txt`, and who plays it on a kernel under test.

A story has a name and below it its steps, divided by semicolons. A path is below the case's base, `.` is the base
itself, `/` the root of the tree with the misc controller, and `~` that of cgroup v2. A step ends with `! ERRNO` where
it is refused, and a look at something with `= ` and what is seen there, lines divided by `|`. `sev` is the resource
where a look names none. An open file has a name; who watches one has read it, and is told of it or not.
"""

import errno
import json
from functools import partial
from itertools import accumulate
from pathlib import Path

from tests.contract.kernel.case_cpusets import cpus
from tests.contract.kernel.vocabulary import MOUNT, Case, KernelUnderTest, child, refused, text

RESOURCES = ("sev", "sev_es")
SAID = {"(empty)": "", "(blank)": "\n"}
"""What a file holds that has no line, or an empty one."""


class Story:
    """One that is played. `pids` and `handles`: of processes and open files by the names that they have in it."""

    def __init__(self, kernel: KernelUnderTest) -> None:
        self.kernel, self.files, self.pids = kernel, kernel.files, dict[str, int]()
        self.handles, self.closed, self.remembered = dict[str, int](), set[str](), dict[str, object]()

    def play(self, step: str) -> None:
        try:
            act, mark, number = step.rpartition(" ! ")
            if mark:
                refused(getattr(errno, number), partial(self.act, act))
                return
            asked, mark, seen = step.partition(" = ")
            if mark:
                found = self.act(asked)
                assert found == seen, f"{found!r} is seen"
            else:
                self.act(step)
        except Exception as error:
            error.add_note(f"in the step: {step}")
            raise

    def place(self, path: str) -> str:
        if path.startswith("~"):
            return MOUNT + path[1:]
        if path.startswith("/"):
            return self.kernel.mount + path.rstrip("/")
        return self.kernel.base if path == "." else f"{self.kernel.base}/{path}".replace("/./", "/")

    def act(self, step: str) -> str:
        verb, _, words = step.partition(" ")
        path, _, rest = words.partition(" ")
        match verb:
            case "new":
                for level in accumulate(path.split("/"), "{}/{}".format):
                    above, _, name = level.rpartition("/")
                    if not above or name not in self.files.listdir(self.place(above)):
                        self._child(above, name)
            case "new-cpus":
                above, _, name = path.rpartition("/")
                cpus(self.kernel, name, self.place(above) if above else "")
            case "charge" | "uncharge" | "underflow":
                resource, amount = rest.split()
                getattr(self.kernel, verb)(self.place(path), resource, int(amount))
            case "open" | "watch":
                self.handles[path] = self.files.open(self.place(rest))
                if verb == "watch":
                    self.files.pread(self.handles[path], 4096)
            case "close":
                self.files.close(self.handles[path])
                self.closed.add(path)
            case "told" | "still":
                wanted = set(words.split())
                assert self._changed(wanted, 5.0 if verb == "told" else 0.05) == (wanted if verb == "told" else set())
            case "remember":
                self.remembered[path] = self._identity(path)
            case "capacity":
                self.kernel.set_capacity(path, int(rest))
            case "offline":
                self.kernel.offline(path)
            case "process":
                self.pids[path] = self.kernel.new_process(self.place(rest))
            case "end":
                self.kernel.end_process(self.pids.pop(path))
            case "limit":
                self.files.write(f"{self.place(path)}/misc.max", rest.encode())
            case "write":
                self.files.write(self.place(path), self._said(rest))
            case "append":
                self.files.append(self.place(path), self._said(rest), False)
            case "replace":
                self.files.replace(self.place(path), self._said(rest))
            case "mkdir" | "rmdir" | "unlink" | "stat" | "listdir":
                getattr(self.files, verb)(self.place(path))
            case _:
                return self._look(verb, words)
        return ""

    def end(self) -> None:
        for name in self.handles.keys() - self.closed:
            self.files.close(self.handles[name])

    def _changed(self, names: set[str], within_s: float) -> set[str]:
        """Of which of them the kernel tells soon, since it holds back what comes fast."""
        found: set[str] = set()
        for _ in range(4):
            waiting = {self.handles[name]: name for name in names - found}
            found |= {waiting[handle] for handle in self.files.wait(list(waiting), within_s)}
            if found == names:
                break
        return found

    def _identity(self, path: str) -> object:
        found = self.files.stat(self.place(path))
        return found.device, found.inode

    def _child(self, above: str, name: str) -> None:
        if name not in self.files.listdir(self.place(above or ".")):
            child(self.kernel, name, self.place(above) if above else "")

    def _said(self, words: str) -> bytes:
        said: str = json.loads(words) if words.startswith('"') else words
        for name, pid in self.pids.items():
            said = said.replace(f"<{name}>", str(pid))
        return said.encode()

    def _look(self, verb: str, words: str) -> str:
        path, *rest = words.split()
        match verb:
            case "listed":
                names = self.files.listdir(self.place(path))
                return "in order" if names == sorted(names) and set(rest) <= set(names) else " ".join(names)
            case "without":
                return "no" if set(rest) & set(self.files.listdir(self.place(path))) else "yes"
            case "kind":
                return "folder" if self.files.stat(self.place(path)).is_dir else "file"
            case "links":
                return str(self.files.stat(self.place(path)).links)
            case "identity":
                return "the same" if self._identity(path) == self.remembered[path] else "another"
            case "at":
                return _lines(self.files.pread(self.handles[path], int(rest[0]) if rest else 4096).decode())
            case "first":
                return _lines(self.files.read(self.place(rest[0]), int(path)).decode())
        if verb == "read":
            found = text(self.kernel, self.place(words))
            for name, pid in self.pids.items():
                found = found.replace(str(pid), f"<{name}>")
            return _lines(found)
        if verb == "line":
            path, wanted = words.split(" ", 1)
            return "yes" if wanted in text(self.kernel, self.place(path)).splitlines() else "no"
        if verb == "misc-files":
            names = [one for one in self.files.listdir(self.place(words)) if one.startswith("misc.")]
            return " ".join(sorted(names)) or "(none)"
        resource, *paths = words.split() if words.split()[0] in RESOURCES else ("sev", *words.split())
        return " ".join(self._value(f"{self.place(path)}/misc.{verb}", resource) for path in paths)

    def _value(self, file: str, resource: str) -> str:
        lines = (line.split() for line in text(self.kernel, file).splitlines())
        return next(number for name, number in lines if name.removesuffix(".max") == resource)


def _lines(found: str) -> str:
    return " | ".join(found.splitlines()) if found.strip() else next(k for k, v in SAID.items() if v == found)


def _played(steps: list[str], kernel: KernelUnderTest) -> None:
    story = Story(kernel)
    try:
        for step in steps:
            story.play(step)
    finally:
        story.end()


def told() -> dict[str, Case]:
    found, steps = dict[str, list[str]](), list[str]()
    for line in Path(__file__).with_name("stories.txt").read_text(encoding="utf-8").splitlines():
        if line.startswith("    "):
            steps += line.strip().split("; ")
        elif line and not line.startswith("#"):
            assert line not in found, f"{line} is told twice"
            steps = found[line] = []
    return {name: partial(_played, steps) for name, steps in found.items()}


STORIES = told()
