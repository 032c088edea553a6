"""`nodeward-oci-hook`: limits a container from an OCI runtime's `createRuntime` hook, where NRI is not.

The runtime runs it for each container when the cgroup and its first process are there and the user's program is not
yet. It asks the daemon; where none answers, the file that the daemon left for the pod; without one the annotations, by
the engine's rule in each case. Then it writes `misc.max`, one write(2) a resource, and reads back.

Exit code 0 starts the container. Anything else refuses it, and runc shows what was said on stderr. crun throws that
away, and so does each of them after exit code 0; so it goes to the machine's log too. What a failure means is
`limits.on_error`, as the daemon's answer or its file says it, else `--on-error`.

It starts in a few tens of milliseconds because it imports next to nothing: no asyncio, click, msgspec, http,
dataclasses or argparse, and the engine (`nodeward.programs.hook.alone`) only where no daemon answers.
"""

import _socket  # `socket` takes a tenth of the hook's time for its enums
import errno
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from time import monotonic
from typing import NamedTuple

from nodeward.core.annotations import read_ones
from nodeward.core.errors import NodewardError, WireError
from nodeward.core.text import printable_name
from nodeward.host.hostfs import HostFiles, OsFiles
from nodeward.neighbours.formats import cgroup_paths, misc_files
from nodeward.neighbours.hook import line as hook_line
from nodeward.neighbours.hook import oci
from nodeward.neighbours.hook.line import HookAnswer, HookRequest

ANSWER_S = 3.0
"""The daemon answers within its own second; a runtime waits longer for a hook."""
TELL_S = 0.3
"""How long what needs no answer may take to be sent."""
MAX_PROC = 64 * 1024
PROGRAM = "nodeward-oci-hook"
SOCKET = "hook.sock"
LOG = "/dev/log"
"""Where syslog(3) writes: journald or another syslog daemon listens there."""
_LIES = f"one of them lies, and neither gets a limit. {oci.MEND_BUNDLE}"
_ERROR, _WARNING = 3 * 8 + 3, 3 * 8 + 4
"""Priorities of syslog(3), of the facility `daemon`."""
USUAL = {1: "/sys/fs/cgroup/misc", 2: "/sys/fs/cgroup"}
"""Where the tree with the misc controller mostly is, by the version of cgroups; else the mount table tells."""
USAGE = """usage: nodeward-oci-hook [--on-error pass|refuse] [--folder DIR]

An OCI runtime runs this as a createRuntime hook, with the container's state on stdin; docs/relay.md says how to
install it. Exit code 0 starts the container.

  --on-error  what a failure means where neither the daemon nor its files say it   [default: pass]
  --folder    the daemon's hook.folder: its socket and what it left for the pods   [default: /run/nodeward]

Example: nodeward-oci-hook --on-error refuse < state.json
"""


class HookError(NodewardError):
    """The limit could not be found out or set. The text names the container, the value, what went wrong, the remedy."""


class Options(NamedTuple):
    """How the hook was installed."""

    on_error: str = "pass"
    folder: str = "/run/nodeward"


class MiscCgroup(NamedTuple):
    """A cgroup in the tree that has the misc controller: the version of cgroups, and the path below the tree's root.
    `why_not`: why no limit holds there, since the container's process is elsewhere in this tree; empty for one that is
    there."""

    version: int
    path: str
    why_not: str = ""


class Controller(NamedTuple):
    """The misc controller: where its tree is mounted (empty for nowhere), what this kernel has of each resource."""

    root: str
    capacity: Mapping[str, int]


class Outcome(NamedTuple):
    """The exit code, and what to say on stderr."""

    code: int
    said: str = ""


Ask = Callable[[str, bytes, bool], bytes]
"""Sends a line to a socket and returns the line that comes back, nothing if it is told not to wait for one; OSError
where it cannot."""


def main(root: str = "/") -> None:
    """The console script; `root` is where the host's files are, the daemon's socket apart."""
    options = parse(sys.argv[1:])
    outcome = options if isinstance(options, Outcome) else run(_stdin(), OsFiles(root), options, ask_socket)
    if outcome.said:
        sys.stderr.write(outcome.said.rstrip() + "\n")
        if outcome.said != USAGE:
            log(outcome)
    sys.stderr.flush()
    os._exit(outcome.code)  # nothing is left to be tidied up, and tidying takes milliseconds


def log(outcome: Outcome, path: str = LOG) -> None:
    """Writes to the machine's log; nothing where nobody listens, or not now."""
    line = f"<{_ERROR if outcome.code else _WARNING}>{PROGRAM}[{os.getpid()}]: {outcome.said.rstrip()}"
    try:
        peer = _socket.socket(_socket.AF_UNIX, _socket.SOCK_DGRAM)
        try:
            peer.setblocking(False)
            peer.sendto(line.encode(errors="replace"), path)
        finally:
            peer.close()
    except OSError:
        pass  # there is no other place left


def parse(arguments: list[str]) -> Options | Outcome:
    """The options, or what to say of them."""
    found = dict[str, str]()
    words = iter(arguments)
    for word in words:
        name, equals, value = word.partition("=")
        key = name.removeprefix("--").replace("-", "_")
        if word in ("-h", "--help"):
            return Outcome(0, USAGE)
        if not name.startswith("--") or key not in Options._fields:
            return Outcome(2, f"nodeward-oci-hook: {word[:200]!r} is no option\n{USAGE}")
        found[key] = value if equals else next(words, "")
        if key == "on_error" and found[key] not in ("pass", "refuse"):
            return Outcome(2, f"nodeward-oci-hook: --on-error is {found[key][:80]!r}, not pass or refuse\n{USAGE}")
        if key != "on_error" and (not found[key].startswith("/") or ".." in found[key].split("/")):
            return Outcome(2, f"nodeward-oci-hook: {name} is {found[key][:200]!r}, not a plain absolute path\n{USAGE}")
    return Options(**found)


def run(stdin: bytes, files: HostFiles, options: Options, ask: Ask) -> Outcome:
    """All of it. `stdin` is the OCI state."""
    who = "container"
    on_error = options.on_error
    try:
        state = oci.decode_state(stdin)
        who = f"container {state.id[:80]}"
        config = _config(files, state.bundle)
        found = oci.identity(config.annotations, state.id)
        if found is None:
            return Outcome(0)  # no pod's
        names = tuple(map(printable_name, (found.namespace, found.pod, found.container)))
        who = f"{names[0]}/{names[1]}, container {names[2] or '(sandbox)'}"
        place = find(files, state, config)
        request = _request(state.id, found, place, config.annotations)
        if not found.container:
            return _tell(request, options, ask)
        answer, notes = decide(request, files, options, place, ask)
        on_error = answer.on_error
        if answer.refusal:
            return Outcome(1, f"nodeward: {answer.refusal}")
        write(files, place, answer.limits)
        return Outcome(0, f"nodeward: {who}: {'; '.join(notes)}" if notes else "")
    except (HookError, WireError, OSError, ValueError) as error:
        return Outcome(1 if on_error == "refuse" else 0, f"nodeward: {who}: {error}{_so(on_error)}")
    except Exception as error:  # a fault of ours: on_error says what it means, never a bare traceback
        fault = f"fault in the hook: {type(error).__name__}: {error}"
        return Outcome(1 if on_error == "refuse" else 0, f"nodeward: {who}: {fault}{_so(on_error)}")


def decide(
    request: HookRequest, files: HostFiles, options: Options, place: MiscCgroup, ask: Ask
) -> tuple[HookAnswer, list[str]]:
    """What the container is to have, and what was in the way of asking."""
    notes = list[str]()
    try:
        line = ask(f"{options.folder}/{SOCKET}", hook_line.encode_request(request), True)
        return hook_line.decode_answer(line), notes
    except FileNotFoundError:
        pass  # no daemon with a hook socket
    except (OSError, WireError) as error:
        notes.append(f"the daemon at {options.folder}/{SOCKET} gave no answer: {error}")
    from nodeward.programs.hook.alone import answer_alone

    def capacity() -> Mapping[str, int]:
        return controller(files, place.version).capacity

    return answer_alone(request, files, options.folder, options.on_error, capacity, notes), notes


def find(files: HostFiles, state: oci.RuntimeState, config: oci.Bundle) -> MiscCgroup:
    """The container's cgroup in the tree that has the misc controller: as the kernel says, and as the bundle says.

    A runtime may leave that tree out, as old ones do misc on cgroup v1. Most containers have no limit there, so what
    the bundle says is enough to ask by, and only a limit that is to be written is an error."""
    named = _named(state.bundle, config)
    data, place = _of_process(files, state.pid)
    at_the_root = place.path in ("", "/")
    if named and cgroup_paths.holds(named, place.path, state.id):
        place = MiscCgroup(place.version, named)
    elif named and (at_the_root or cgroup_paths.joined(data, named, state.id)):
        place = MiscCgroup(place.version, named, _not_joined(state.pid, place))
    elif at_the_root:
        raise HookError(
            f"process {state.pid} is in no cgroup of its own ({place.path!r}, cgroup v{place.version}). Have the "
            "runtime make one: linux.cgroupsPath in the bundle, podman without --cgroups=disabled"
        )
    elif named:
        raise HookError(
            f"process {state.pid} is in cgroup {place.path}, but linux.cgroupsPath in {state.bundle} is {named}: "
            f"{_LIES}"
        )
    if cgroup_paths.is_shared(place.path, state.id):
        raise HookError(
            f"cgroup {place.path} is there for other containers too, and gets no limit. Give the container one of its "
            "own: linux.cgroupsPath in the bundle is to end with the container's id"
        )
    return place


def _named(bundle: str, config: oci.Bundle) -> str:
    try:
        return cgroup_paths.container_path(config.cgroups_path)
    except WireError as error:
        raise HookError(f"linux.cgroupsPath in {bundle}: {error}. {oci.MEND_BUNDLE}") from error


def _of_process(files: HostFiles, pid: int) -> tuple[bytes, MiscCgroup]:
    """The kernel's list of the cgroups that the process is in, and the one in the tree that has misc."""
    if not pid:
        raise HookError("the state has no pid: install the hook in the stage createRuntime, where there is a process")
    try:
        data = files.read(f"/proc/{pid}/cgroup", MAX_PROC)
        unified, legacy = cgroup_paths.of_process(data)
    except WireError as error:
        raise HookError(f"process {pid}: {error}. Run the hook in the host's cgroup namespace") from error
    except FileNotFoundError as error:
        raise HookError(
            f"the state's process {pid} is not there: {error}. It has ended (see the runtime's log), or the hook is to "
            "be run in the PID namespace of the runtime"
        ) from error
    return data, MiscCgroup(1, legacy) if legacy else MiscCgroup(2, unified)


def _not_joined(pid: int, place: MiscCgroup) -> str:
    tree, remedy = "tree of cgroup v2", "See nodeward doctor"
    if place.version == 1:
        tree, remedy = "misc hierarchy of cgroup v1", "Use one that joins it (runc 1.1.6 or newer), or cgroup v2"
    return (
        f"process {pid} is in no cgroup of its own in the {tree} ({place.path!r}), which the OCI runtime has not "
        f"joined. {remedy}"
    )


def controller(files: HostFiles, version: int) -> Controller:
    """The misc controller of this version of cgroups, at the usual place or where the mount table says."""
    for root in _roots(files, version):
        try:
            return Controller(root, misc_files.parse(files.read(f"{root}/misc.capacity", misc_files.MAX_BYTES)))
        except (FileNotFoundError, NotADirectoryError):
            continue
    return Controller("", {})


def _roots(files: HostFiles, version: int) -> Iterator[str]:
    """Where the tree may be. Other v1 trees, and a container's part of a tree, are mounted too; only the root of the
    misc controller's tree has a misc.capacity."""
    yield USUAL[version]
    from nodeward.neighbours.formats import cgroup_mounts  # most nodes never need it

    for mount in cgroup_mounts.mounts(files.read("/proc/self/mountinfo", cgroup_mounts.MAX_BYTES)):
        if mount.kind == ("cgroup2" if version == 2 else "cgroup"):
            yield mount.place


def write(files: HostFiles, place: MiscCgroup, limits: Mapping[str, int]) -> None:
    """Writes each limit and reads all back. HookError says which, where and why not, of all that failed: also where
    this kernel, unlike whoever answered, has nothing of a resource."""
    if not limits:
        return
    if place.why_not:
        lacking = ", ".join(f"{resource} {value}" for resource, value in limits.items())
        raise HookError(f"the limit {lacking} cannot be set: {place.why_not}")
    there = controller(files, place.version)
    path = f"{there.root}{place.path}/misc.max"
    wanted = {name: value for name, value in limits.items() if there.capacity.get(name, 0) > 0}
    refused = {name: said for name, value in wanted.items() if (said := _write_one(files, path, name, value))}
    written = {name: value for name, value in wanted.items() if name not in refused}
    faults = [*refused.values(), *_read_back(files, path, written)]
    lacking = ", ".join(f"{resource} {value}" for resource, value in limits.items() if resource not in wanted)
    if lacking:
        faults.append(_lacks(lacking, there, place.version))
    if faults:
        raise HookError(". Also: ".join(faults))


def _read_back(files: HostFiles, path: str, written: Mapping[str, int]) -> list[str]:
    """What the kernel has otherwise than it was written. It shows its largest number as `max`."""
    try:
        now = misc_files.parse_limits(files.read(path, misc_files.MAX_BYTES)) if written else {}
    except OSError as error:
        return [f"cannot read {path} back: {_why(error)}"]
    return [
        f"wrote '{resource} {value}' to {path}, and the kernel has {resource} at {now.get(resource, 'max')}: "
        "somebody else writes it too. nodeward doctor names other owners of misc.max"
        for resource, value in written.items()
        if now.get(resource, 2**64 - 1) != value
    ]


def _lacks(lacking: str, there: Controller, version: int) -> str:
    if there.root:
        has = ", ".join(there.capacity) or "nothing"
        return (
            f"the limit {lacking} cannot be set: {there.root}/misc.capacity has {has}. Whoever answered saw another "
            "tree: compare cgroups.root of the daemon's settings with nodeward doctor"
        )
    kind = "cgroup2" if version == 2 else "cgroup -o misc"
    return (
        f"the limit {lacking} cannot be set: no misc.capacity at {USUAL[version]} nor where /proc/self/mountinfo has a "
        f"tree of cgroup v{version} for misc. Mount it (mount -t {kind} none {USUAL[version]}), or see nodeward doctor"
    )


def _write_one(files: HostFiles, path: str, resource: str, value: int) -> str:
    """Why it cannot be written; empty where it is."""
    line = misc_files.limit_line(resource, str(value))
    try:
        files.write(path, line)
    except OSError as error:
        return f"cannot write '{resource} {value}' to {path}: {_why(error)}"
    return ""


def ask_socket(
    path: str, line: bytes, wait: bool, answer_s: float = ANSWER_S, clock: Callable[[], float] = monotonic
) -> bytes:
    """One line to the daemon, one line back, within `answer_s` in all; without `wait` none back, within TELL_S."""
    peer = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
    end = clock() + answer_s
    try:
        peer.settimeout(answer_s if wait else TELL_S)
        peer.connect(path)
        peer.sendall(line)
        if not wait:
            return b""
        found = b""
        while not found.endswith(b"\n"):
            left = end - clock()
            if left <= 0:
                raise TimeoutError(errno.ETIMEDOUT, f"no whole answer within {answer_s:.0f} s")
            peer.settimeout(left)
            piece = peer.recv(hook_line.MAX_ANSWER)
            if not piece or len(found) > hook_line.MAX_ANSWER:
                raise OSError(errno.EPROTO, f"the answer ends or grows without a line's end after {len(found)} bytes")
            found += piece
        return found
    finally:
        peer.close()


def _tell(request: HookRequest, options: Options, ask: Ask) -> Outcome:
    """What holds a sandbox is left alone; the daemon may want to know that there is one, and the pod need not wait."""
    try:
        ask(f"{options.folder}/{SOCKET}", hook_line.encode_request(request), False)
    except OSError:
        return Outcome(0)  # nobody listens
    return Outcome(0)


def _request(container_id: str, who: oci.Identity, place: MiscCgroup, annotations: Mapping[str, str]) -> HookRequest:
    uid, above = who.pod_uid, cgroup_paths.uid_above(place.path)
    if uid and above and uid != above:
        raise HookError(
            f"the bundle says that pod {uid} is its own, but cgroup {place.path} is in pod {above}: {_LIES}"
        )
    uid = uid or cgroup_paths.pod_uid(place.path.split("/")[-2])
    return HookRequest(
        container_id, who.sandbox_id, uid, who.namespace, who.pod, who.container, place.path, read_ones(annotations)
    )


def _config(files: HostFiles, bundle: str) -> oci.Bundle:
    path = f"{bundle}/config.json"
    try:
        return oci.decode_config(files.read(path, oci.MAX_CONFIG))
    except OSError as error:
        why = os.strerror(error.errno or 0)
        raise HookError(
            f"the state's bundle {bundle} has no config.json that can be read: {why}. The hook must run as root, where "
            "the runtime's files are seen: install it as docs/relay.md says"
        ) from error


def _why(error: OSError) -> str:
    return f"{os.strerror(error.errno or 0)} (errno {error.errno}). {_remedy(error.errno)}"


def _remedy(number: int | None) -> str:
    if number == errno.ENOENT:
        return (
            "The misc controller is not switched on for this cgroup: crun does so since 1.18, runc always, and "
            "`nodeward node` for every pod"
        )
    if number in (errno.EACCES, errno.EPERM, errno.EROFS):
        return "The hook must run as root, with the cgroup tree writable"
    if number == errno.EINVAL:
        return "This kernel does not take the value; see misc.capacity"
    return "See `nodeward doctor`"


def _so(on_error: str) -> str:
    return "" if on_error == "refuse" else ". The container starts all the same, without this limit (on_error is pass)"


def _stdin() -> bytes:
    """At most one byte more than is read of it."""
    pieces, room = list[bytes](), oci.MAX_STATE + 1
    while room > 0 and (piece := os.read(0, room)):
        pieces.append(piece)
        room -= len(piece)
    return b"".join(pieces)
