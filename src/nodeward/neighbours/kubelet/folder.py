"""Looks at kubelet's folder of device plugins: its sockets, and what kubelet has written.

Synchronous and for a lane's thread. Nothing is written; only sockets of ours that nobody listens at any more are taken
away. A socket is asked nothing: that somebody listens shows by a connection, which is closed at once.

Who else offers a resource (`rival`) shows by the signs that docs/keys.md lists. The checkpoint alone is none: it keeps
a plugin's ids for five minutes after the plugin has ended (GetCapacity in kubelet's device manager) and for as long as
kubelet is down, and on ours is also what a rival's pods have left of it. So while kubelet reads ours, ids count only if
they are not what our last list had healthy, and that was taken over (`Published.may_have_registered`). One that cannot
be read is no sign. The node's status counts before the registration with a kubelet that has not had our list, and not
what kubelet wrote there itself (`of_status`): that stays when the plugin has gone, ours too.
"""

import errno
import logging
import os
import socket
import stat
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from nodeward.core.errors import WireError
from nodeward.neighbours.formats.kube_node import OnNode
from nodeward.neighbours.kubelet.checkpoint import CheckpointFile

log = logging.getLogger(__name__)
PLACE, KUBELET, OURS = "device-plugins", "kubelet.sock", "nodeward-"
"""Below kubelet's folder; its own socket there, and what the names of ours begin with."""
MOST_SOCKETS = 256
"""In one folder; more of them are not looked at."""
MOST_NAMED = 3
"""Ids or sockets in a text."""
_TAKE_OUT = "if its author is gone, an administrator has to take it out of the node's status: see docs/keys.md"
"""What is left there nobody takes away, and it cannot be told from what is still meant."""


async def _nothing_on_node() -> OnNode:
    return OnNode()


class Identity(NamedTuple):
    """Which file it is: another one at the same path has another inode, or the same and a later change."""

    device: int
    inode: int
    changed_ns: int


@dataclass(frozen=True, slots=True)
class Offering:
    """One resource that we offer. `ids_begin` is what the names of our ids begin with; `mount` the folder that each
    container is given now, empty for none, and whether it is given one that is not there: then the container waits.
    `devices` are the device nodes that it is given now, and `remedy` says what to do where one is not there. `on_node`
    reads what the node's status has of the resource; nothing where that cannot be read. Where ids are `tokens` for
    device nodes, as with Intel's plugins, kubelet asks nothing before a start, no id is better than another, and the
    container is told of the device nodes once for each id."""

    key: str
    resource: str
    ids_begin: str
    mount: Callable[[], tuple[str, bool]] = lambda: ("", False)
    on_node: Callable[[], Awaitable[OnNode]] = _nothing_on_node
    devices: Callable[[], Sequence[str]] = tuple
    remedy: str = ""
    tokens: bool = False

    @property
    def sockets_begin(self) -> str:
        """What the names of our sockets begin with."""
        return f"{OURS}{self.key}-"


@dataclass(frozen=True, slots=True)
class FolderState:
    """One look. `kubelet` is None where its socket is not there."""

    kubelet: Identity | None
    answers: bool
    """Whether somebody listens at it; only tried while we have no socket, since kubelet would log each try."""
    own: bool
    """Whether our own socket is there."""
    mount: bool
    """Whether the folder to be mounted is there."""
    written: Identity | None = None
    """Which checkpoint it is: kubelet replaces the file at each list and each allocation."""


@dataclass(frozen=True, slots=True)
class Around:
    """Who else is there: the sockets, by name, that somebody listens at, and the ids that kubelet has registered."""

    plugins: tuple[str, ...] = ()
    """In kubelet's folder of device plugins."""
    registry: tuple[str, ...] = ()
    """In its folder plugins_registry."""
    registered: Mapping[str, tuple[str, ...]] | None = field(default_factory=dict)
    """None where the checkpoint cannot be read."""
    written_ns: int = 0
    """When kubelet wrote that, by the wall clock; it may have been later."""


class Folder:
    """The folders beneath kubelet's, looked at for one offering. Kubelet has its device plugins and their checkpoint
    in `kubelet_dir` whatever its --root-dir is (`root`), and plugins_registry below that."""

    def __init__(self, kubelet_dir: str, root: str, offering: Offering, checkpoint: CheckpointFile) -> None:
        self.path = f"{kubelet_dir.rstrip('/')}/{PLACE}"
        self._registry = f"{root.rstrip('/')}/plugins_registry"
        self._offering, self._checkpoint = offering, checkpoint
        self.at = ""
        """The path that is being looked at, empty for none; any thread may ask."""
        self._unread = b""
        """Of which faulty checkpoint that was said."""

    def look(self, own: str, mount: str) -> FolderState:
        """Looks at the folder now; `own` is the name of our socket, `mount` a folder to be mounted, each empty for
        none."""
        path = self.at = f"{self.path}/{KUBELET}"
        kubelet = _identity(path)
        answers = not own and kubelet is not None and _listens(path)
        is_own = bool(own) and _identity(f"{self.path}/{own}") is not None
        self.at = mount
        is_mount = bool(mount) and os.path.isdir(mount)
        self.at = self._checkpoint.path
        written = _identity(self._checkpoint.path)
        self.at = ""
        return FolderState(kubelet, answers, is_own, is_mount, written)

    def no_device(self, paths: Sequence[str]) -> str:
        """Why one of these is not a device node that a container can be given; empty where all are."""
        why = ""
        for path in paths:
            self.at = path
            try:
                mode = os.stat(path).st_mode
            except OSError as error:
                why = f"{path}: {error.strerror or error}"
            else:
                why = "" if stat.S_ISCHR(mode) else f"{path} is not a character device"
            if why:
                break
        self.at = ""
        return why

    def around(self, own: str) -> Around:
        """The other plugins, after our own dead sockets were removed."""
        plugins: list[str] = []
        self.at = self.path
        for name in _sockets(self.path):
            path = f"{self.path}/{name}"
            if name in (KUBELET, own):
                continue
            if _listens(path):
                plugins.append(name)
            elif name.startswith(self._offering.sockets_begin):
                log.info("socket=removed path=%s why='nobody listens there any more'", path)
                _unlink(path)
        self.at = self._registry
        registry = tuple(name for name in _sockets(self._registry) if _listens(f"{self._registry}/{name}"))
        self.at = self._checkpoint.path
        written = _identity(self._checkpoint.path)
        registered = self._registered()
        self.at = ""
        return Around(tuple(plugins), registry, registered, written.changed_ns if written else 0)

    def _registered(self) -> Mapping[str, tuple[str, ...]] | None:
        try:
            digest, found = self._checkpoint.read()
        except FileNotFoundError:
            return {}
        except OSError as error:
            log.warning("checkpoint=unread path=%s error=%s", self._checkpoint.path, error)
            return None
        if not isinstance(found, WireError):
            return found.registered
        if digest != self._unread:
            log.warning("checkpoint=unread path=%s error=%s", self._checkpoint.path, found)
            self._unread = digest
        return None


def rival(offering: Offering, around: Around, offered: Collection[str] = ()) -> str:
    """Which other plugin offers the resource by kubelet's folders, in a sentence; empty for nobody. `offered` are the
    ids that kubelet may have of us now, whatever their names."""
    twins = [name for name in around.plugins if name.startswith(offering.sockets_begin)]
    if twins:
        return f"another nodeward listens at {twins[0]}"
    domain, _, name = offering.resource.partition("/")
    kubevirt = f"kubevirt-{name}.sock"
    if domain == "devices.kubevirt.io" and kubevirt in around.plugins:
        return f"KubeVirt's own device plugin listens at {kubevirt}"
    if (intels := f"{domain}-{name}.sock") in around.plugins:
        return f"Intel's device plugin listens at {intels}"
    registered = (around.registered or {}).get(offering.resource, ())
    is_ours = any(one.startswith(offering.ids_begin) for one in registered)
    foreign = [] if is_ours else [one for one in registered if one not in offered]
    listening = (*around.plugins, *around.registry)
    if not (foreign and listening):
        return ""
    return (
        f"kubelet has {len(foreign)} ids of another plugin's registered ({_some(foreign)}), and it may be one of those "
        f"that listen: {_some(listening)}"
    )


def of_status(offering: Offering, around: Around, there: OnNode, *, known: bool = False) -> str:
    """Who writes the resource into the node's status without a device plugin, in a sentence; empty for nobody. Where a
    kubelet has `known` us, what nobody is said to have written may be our own number."""
    if there.amount <= 0 or there.by_kubelet:
        return ""
    if there.writer:
        return (
            f"the node's status has {there.amount} of it, written there by {there.writer[:64]!r} and not by kubelet; "
            f"{_TAKE_OUT}"
        )
    if known or around.registered is None or offering.resource in around.registered:
        return ""
    return (
        f"the node's status has {there.amount} of it, and kubelet knows no plugin for it: somebody writes it there; "
        f"{_TAKE_OUT}"
    )


def left_behind(kubelet_dir: str) -> tuple[str, ...]:
    """The paths of our dead sockets, which a killed daemon leaves behind."""
    folder = f"{kubelet_dir.rstrip('/')}/{PLACE}"
    paths = (f"{folder}/{name}" for name in _sockets(folder) if name.startswith(OURS))
    return tuple(path for path in paths if not _listens(path))


def _some(names: Sequence[str]) -> str:
    shown = ", ".join(name[:64] for name in names[:MOST_NAMED])
    return f"{shown} ..." if len(names) > MOST_NAMED else shown


def _identity(path: str) -> Identity | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return Identity(found.st_dev, found.st_ino, found.st_ctime_ns)


def _is_socket(path: str) -> bool:
    try:
        return stat.S_ISSOCK(os.stat(path).st_mode)
    except OSError:
        return False


def _sockets(folder: str) -> Iterator[str]:
    try:
        names = sorted(os.listdir(folder))
    except OSError:
        return
    found = 0
    for name in names:
        if found < MOST_SOCKETS and _is_socket(f"{folder}/{name}"):
            found += 1
            yield name


def _listens(path: str) -> bool:
    """Whether somebody does: also one who is too busy to take the connection. Nothing is waited for: to a unix socket
    a connection is made at once, or its queue is full (EAGAIN)."""
    with socket.socket(socket.AF_UNIX) as one:
        one.setblocking(False)
        try:
            one.connect(path)
        except OSError as error:
            return error.errno not in (errno.ECONNREFUSED, errno.ENOENT, errno.ENOTSOCK, errno.ENAMETOOLONG)
    return True


def _unlink(path: str) -> None:
    try:
        os.unlink(path)
    except OSError as error:
        log.warning("socket=left path=%s error=%s", path, error)
