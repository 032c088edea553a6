"""Points this machine's kubelet at the relay, and back.

What counts, the first that says it: a flag of the command line, a drop-in of `--config-dir` (the last by name), the
file of `--config`, kubelet's own default. Flags are changed in the environment files of its unit, where they stand;
with drop-ins one of our own is added. All is looked at before anything is written, and a file is replaced whole.
"""

import difflib
import os
import re
import stat
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

from nodeward.core.errors import NodewardError, WireError
from nodeward.features.settings import RelaySection
from nodeward.host.hostfs import HostFiles
from nodeward.neighbours.kubelet import endpoint_files as text
from nodeward.neighbours.kubelet.endpoint_files import IMAGES, RUNTIME
from nodeward.neighbours.sockets import unary_client
from nodeward.neighbours.sockets.unary_client import CallFailedError

MAX_BYTES: Final = 1024 * 1024
MOST_PROCESSES: Final = 100_000
ANSWER_S: Final = 5.0
CONFIG: Final = "/var/lib/kubelet/config.yaml"
FLAG_FILES: Final = ("/var/lib/kubelet/kubeadm-flags.env", "/etc/default/kubelet", "/etc/sysconfig/kubelet")
DROP_IN: Final = "99-nodeward-relay.conf"
DEFAULT_RUNTIME: Final = "/run/containerd/containerd.sock"
"""Kubelet's own since 1.27."""
_HEAD = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"


class PointError(NodewardError):
    """Nothing was changed; the text says why, and what to do."""


@dataclass(frozen=True, slots=True)
class EndpointFiles:
    """The files that may name this kubelet's endpoints. `flags` are those of its running process, with no file behind
    them."""

    config: str = CONFIG
    config_dir: str = ""
    flag_files: tuple[str, ...] = FLAG_FILES
    flags: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Edit:
    """A file before and after; None where there is none. A new one has owner and mode of the file `like`, if any."""

    path: str
    before: str | None
    after: str | None
    like: str = ""

    def shown(self) -> str:
        """The edit as a patch."""
        before, after = ((one or "").splitlines() for one in (self.before, self.after))
        return "\n".join(difflib.unified_diff(before, after, self.path, self.path, n=1, lineterm=""))


def places(files: HostFiles, config: str, config_dir: str, flag_files: tuple[str, ...]) -> EndpointFiles:
    """The files to look at: what is given; if nothing is, what the command line of the kubelet that runs names, and
    where kubeadm puts it. PointError where none runs: its files may be any."""
    words = [] if config or config_dir or flag_files else _running(files)
    named = text.in_flags(" ".join(words))
    config, config_dir = config or _option(words, "--config"), config_dir or _option(words, "--config-dir")
    return EndpointFiles(config or CONFIG, config_dir, flag_files or FLAG_FILES, named)


def to_relay(files: HostFiles, where: EndpointFiles, relay: RelaySection) -> tuple[list[Edit], list[str]]:
    """The edits that make kubelet call the relay, and what to say of them."""
    found = _found(files, where)
    runtime = found.get(RUNTIME, ("", DEFAULT_RUNTIME))[1]
    if _same(runtime, relay.listen):
        return [], [f"kubelet's endpoint is {_url(relay.listen)} already"]
    if not _same(runtime, relay.runtime):
        raise PointError(
            f"kubelet's runtime is {runtime}, and the relay would ask another, {_url(relay.runtime)}; "
            f"set relay.runtime to {runtime.removeprefix('unix://')} in the settings"
        )
    wanted, said = {RUNTIME: _url(relay.listen)}, list[str]()
    images = found[IMAGES][1] if IMAGES in found else runtime
    if relay.image and _same(images, relay.runtime):
        raise PointError(
            f"kubelet asks its runtime, {images}, for images, and {_url(relay.listen)} serves none where relay.image "
            f"is set ({relay.image}): no image could be pulled. Take relay.image and relay.image_listen out of the "
            f"settings, or set kubelet's {IMAGES} to {_url(relay.image)}"
        )
    if _same(images, relay.runtime):
        wanted |= {IMAGES: _url(relay.listen)} if IMAGES in found else {}
    elif relay.image and _same(images, relay.image):
        wanted[IMAGES] = _url(relay.image_listen)
    elif not (relay.image and _same(images, relay.image_listen)):
        said.append(f"images stay at {images}, past the relay; relay.image and relay.image_listen would relay them")
    return _edits(files, where, found, wanted), said


def to_runtime(files: HostFiles, where: EndpointFiles, relay: RelaySection) -> tuple[list[Edit], list[str]]:
    """The edits that make kubelet call the runtime again, as before; and what is to be said of it."""
    ours = {_url(path) for path in (relay.listen, relay.image_listen) if path}
    edits, left = list[Edit](), list[str]()
    drop_in = f"{where.config_dir}/{DROP_IN}" if where.config_dir else ""
    if drop_in and (there := read_text(files, drop_in)) is not None:
        edits.append(Edit(drop_in, there, None))
    for path in (*where.flag_files, where.config):
        there = read_text(files, path)
        then = text.back(there, ours) if there is not None else None
        if then != there:
            edits.append(Edit(path, there, then))
        if text.HAD in (then or ""):
            left.append(
                f"{path}: below {text.HAD!r} stands another endpoint than the settings' relay.listen; set it by hand"
            )
    found = {key: one for key, one in _found(files, where).items() if one[0] not in {edit.path for edit in edits}}
    left += [f"{key} in {path} is the relay's, {endpoint}, and was not written by this command; set it by hand to "
            f"{_url(relay.runtime)}"
            for key, (path, endpoint) in found.items() if _same(endpoint, relay.listen)]  # fmt: skip
    return edits, left or ([] if edits else ["kubelet does not call the relay; nothing is to be done"])


def sockets(edits: Iterable[Edit], relay: RelaySection, target: str) -> list[str]:
    """The sockets that kubelet asks once these are written, and did not before: that for all but images first."""
    if target == "relay":
        images, first = relay.image_listen, relay.listen
    else:
        images, first = relay.image, relay.runtime
    told = any(_url(relay.image_listen) in text for edit in edits for text in (edit.before or "", edit.after or ""))
    return [first, images] if images and told else [first]


def write(files: HostFiles, edits: Iterable[Edit]) -> None:
    """Writes all, or none: nearly all that can fail is done before the first file is another, and where the rest does
    (a file that is immutable, or a mount), those before it are put back."""
    edits = list(edits)
    fresh: list[str] = []
    written: list[Edit] = []
    try:
        for edit in edits:
            if edit.after is not None:
                fresh.append(_prepared(edit.path, edit.after, edit.like))
        for edit in edits:
            if read_text(files, edit.path) != edit.before:
                raise PointError(f"{edit.path}: somebody else has changed it meanwhile; nothing was changed")
        for edit in edits:
            _put(edit.path, edit.after)
            written.append(edit)
    except OSError as error:
        left = [edit.path for edit in reversed(written) if not _put_back(edit)]
        what = f"changed all the same, put it back by hand: {', '.join(left)}" if left else "nothing was changed"
        raise PointError(f"{error.filename}: {error.strerror}; {what}") from error
    finally:
        for path in fresh:
            with suppress(FileNotFoundError):
                os.unlink(path)


def _put(path: str, content: str | None) -> None:
    """The file that was prepared in its place, or none."""
    place = os.path.realpath(path)
    if content is None:
        os.unlink(place)
    else:
        os.replace(_fresh(place), place)


def _put_back(edit: Edit) -> bool:
    try:
        if edit.before is not None:
            _prepared(edit.path, edit.before)
        _put(edit.path, edit.before)
    except OSError:
        return False
    return True


async def answers(socket: str) -> str:
    """Why nothing that speaks CRI answers at this socket; empty if something does."""
    try:
        await unary_client.call(socket, "/runtime.v1.RuntimeService/Version", b"", ANSWER_S)
    except CallFailedError as error:
        return "" if error.status == unary_client.UNIMPLEMENTED else str(error)
    except (OSError, TimeoutError, WireError) as error:
        return f"{socket}: {error or 'no answer'}"
    return ""


def _found(files: HostFiles, where: EndpointFiles) -> dict[str, tuple[str, str]]:
    """What counts for each endpoint that is named: the file, and the value."""
    found: dict[str, tuple[str, str]] = {}
    drop_ins = _names(files, where.config_dir) if where.config_dir else []
    for path in (where.config, *(f"{where.config_dir}/{name}" for name in drop_ins)):
        if (content := read_text(files, path)) is not None:
            found |= {key: (path, value) for key, value in _parsed(path, content, config=True).items()}
    by_flag: dict[str, tuple[str, str]] = {}
    for path in where.flag_files:
        if (content := read_text(files, path)) is not None:
            by_flag |= {key: (path, value) for key, value in _parsed(path, content, config=False).items()}
    if unfound := sorted(where.flags.keys() - by_flag.keys()):
        flag = text.FLAGS[unfound[0]]
        raise PointError(
            f"kubelet runs with {flag}, which none of {', '.join(where.flag_files)} has; name the file that has it by "
            "--flags-file, or change it by hand in kubelet's unit"
        )
    return found | by_flag


def _edits(
    files: HostFiles, where: EndpointFiles, found: Mapping[str, tuple[str, str]], wanted: Mapping[str, str]
) -> list[Edit]:
    by_file: dict[str, dict[str, str]] = {}
    own = f"{where.config_dir}/{DROP_IN}" if where.config_dir else ""
    for key, endpoint in wanted.items():
        place = found[key][0] if key in found else where.config
        if own and place not in where.flag_files:
            if os.path.dirname(place) == where.config_dir and os.path.basename(place) > DROP_IN:
                raise PointError(f"{place} would count more than our own {DROP_IN}; set {key} there to {endpoint}")
            place = own
        by_file.setdefault(place, {})[key] = endpoint
    edits: list[Edit] = []
    for path, keys in by_file.items():
        before = read_text(files, path)
        if path == own:
            edits.append(Edit(path, before, text.config_with(_HEAD, keys).replace(f"{text.HAD}\n", "")))
        elif before is None:
            raise PointError(f"{path}: there is no such file; name kubelet's by --kubelet-config or --flags-file")
        else:
            change = text.flags_with if path in where.flag_files else text.config_with
            try:
                edits.append(Edit(path, before, change(before, keys)))
            except WireError as error:
                raise PointError(f"{path}: {error.fault}") from error
    return edits


def _running(files: HostFiles) -> list[str]:
    """The command line of this machine's kubelet: the one process of root's that has the name."""
    found: list[str] = []
    for pid in [name for name in files.listdir("/proc") if name.isdigit()][:MOST_PROCESSES]:
        with suppress(OSError):  # it has ended
            if files.read(f"/proc/{pid}/comm", 64) != b"kubelet\n":
                continue
            if re.search(rb"^Uid:\s+0\s", files.read(f"/proc/{pid}/status", MAX_BYTES), re.MULTILINE):
                found.append(files.read(f"/proc/{pid}/cmdline", MAX_BYTES).decode("utf-8", "replace"))
    if len(found) != 1:
        raise PointError(
            f"{len(found) or 'no'} kubelets run here, so it cannot be seen which files are this node's kubelet's; name "
            "them by --kubelet-config, --kubelet-config-dir and --flags-file"
        )
    return found[0].split("\0")


def _option(words: list[str], name: str) -> str:
    for at, word in enumerate(words):
        if word.startswith(f"{name}="):
            return word.partition("=")[2]
        if word == name and at + 1 < len(words):
            return words[at + 1]
    return ""


def _parsed(path: str, content: str, *, config: bool) -> dict[str, str]:
    try:
        return text.in_config(content) if config else text.in_flags(content)
    except WireError as error:
        raise PointError(f"{path}: {error.fault}") from error


def read_text(files: HostFiles, path: str) -> str | None:
    """A file's text; None where there is none."""
    try:
        return files.read(os.path.realpath(path), MAX_BYTES).decode("utf-8")
    except FileNotFoundError:
        return None
    except OSError as error:
        raise PointError(f"{path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise PointError(f"{path}: is not UTF-8") from error


def _names(files: HostFiles, folder: str) -> list[str]:
    with suppress(FileNotFoundError):
        return [name for name in files.listdir(folder) if name.endswith(".conf")]
    return []


def _same(endpoint: str, path: str) -> bool:
    return os.path.realpath(endpoint.removeprefix("unix://")) == os.path.realpath(path)


def _url(path: str) -> str:
    return f"unix://{path}"


def _fresh(place: str) -> str:
    return f"{place}.nodeward-new"


def _prepared(path: str, content: str, like: str = "") -> str:
    """A file beside it with the content, and owner and mode as they are, or as those of `like`; on the disk."""
    place = os.path.realpath(path)
    was = next((os.stat(one) for one in (place, like) if one and os.path.exists(one)), None)
    with suppress(FileNotFoundError):
        os.unlink(_fresh(place))  # left by one that was killed
    fd = os.open(_fresh(place), os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with open(fd, "w", encoding="utf-8", newline="") as file:
        file.write(content)
        file.flush()
        os.fchmod(fd, stat.S_IMODE(was.st_mode) if was is not None else 0o644)
        if was is not None:
            os.fchown(fd, was.st_uid, was.st_gid)
        os.fsync(fd)
    return _fresh(place)
