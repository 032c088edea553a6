"""Takes back what the undo list has, newest first; in cgroups only what was changed in this boot."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from nodeward.core.cgroup import Hierarchy
from nodeward.core.errors import NodewardError, WireError
from nodeward.features.settings import Settings
from nodeward.host import undo
from nodeward.host.hostfs import HostFiles
from nodeward.host.undo import boot_id
from nodeward.neighbours.cgroups import writer
from nodeward.neighbours.cgroups.hierarchy import Tree


@dataclass(frozen=True, slots=True)
class TakenBack:
    """`done` and `failed` are sentences, one a change."""

    done: tuple[str, ...]
    failed: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Due:
    """The list as it concerns this boot: the changes to take back, newest first; what is to be said of others, whose
    cgroups ended with their boot; and of those which nobody can tell of, that they stay."""

    changes: tuple[undo.Change, ...]
    ended: tuple[str, ...]
    untold: tuple[str, ...]


def due(files: HostFiles, folder: str) -> Due:
    """What there is to take back. OSError where list or boot cannot be read. May sleep."""
    listed, boot = undo.read(files, folder), boot_id(files)
    ended = [change for change in listed if change.in_cgroups and change.boot not in ("", boot)]
    untold = [change for change in listed if change.in_cgroups and not change.boot]
    left = [change for change in reversed(listed) if not change.in_cgroups or change.boot == boot]
    said = f"{len(ended)} change(s) of an earlier boot: gone with its cgroups, nothing to take back"
    return Due(
        tuple(left),
        (said,) if ended else (),
        tuple(
            f"{change.target}: the list does not say in which boot it was changed, and since then it may be the "
            "runtime's; it is left as it is, and a restart of the machine takes it back"
            for change in untold
        ),
    )


def _no_api(path: str) -> str:
    raise NodewardError("no API server was named")


OBJECTS: Mapping[str, str] = {
    "epc": "sgx.intel.com/epc of the node",
    "kubevirt": "the label cpumanager of the node",
    "nfd": "NodeFeature",
    "nrt": "NodeResourceTopology",
    "slice": "ResourceSlice",
}
"""What is ours in the API server, by the kind of the change."""
_NO_REMOVALS: Mapping[str, Callable[[str], str]] = {}


def uninstall(
    settings: Settings, files: HostFiles, removals: Mapping[str, Callable[[str], str]] = _NO_REMOVALS
) -> TakenBack:
    """Undoes every change on the list; the list goes when all of it is undone. OSError where it cannot be read.

    `removals`, by a kind of OBJECTS, delete what is ours from the API server; NodewardError where they cannot."""
    found = due(files, settings.state_dir)
    done, failed = list(found.ended), list(found.untold)
    for change in found.changes:
        kind, _, path = change.target.partition(":")
        if kind == "limits" and change.old == "max":
            _lift(files, Tree(files, settings.cgroups.root).look(), path, done, failed)
            continue
        if kind in OBJECTS and change.old == "absent":
            try:
                done.append(f"{OBJECTS[kind]} {path}: {removals.get(kind, _no_api)(path)}")
            except NodewardError as error:
                by_hand = "" if kind in ("epc", "kubevirt") else "; delete it with kubectl"
                failed.append(f"{OBJECTS[kind]} {path} cannot be deleted: {error}{by_hand}")
            continue
        if kind != "subtree" or change.old != "absent":
            failed.append(f"{change.target}: this version does not know how to restore {change.old!r}")
            continue
        try:
            count = writer.disable_misc(files, settings.cgroups.root, path)
        except (OSError, ValueError) as error:
            failed.append(f"{path}: misc cannot be switched off: {error}")
        else:
            switched = f"misc switched off in {count} cgroup(s); the limits below it are gone"
            done.append(f"{path}: {switched if count else 'misc is off already'}")
    if not failed and done:
        files.unlink(f"{settings.state_dir.rstrip('/')}/undo.jsonl")
    return TakenBack(tuple(done), tuple(failed))


def _lift(files: HostFiles, tree: Hierarchy, path: str, done: list[str], failed: list[str]) -> None:
    """Limits below a cgroup: on v2 where the controller had been on before us, in cgroup v1 always."""
    try:
        lifted, removed = writer.lift_limits(files, tree, path)
    except (OSError, ValueError, WireError) as error:
        failed.append(f"{path}: limits cannot be taken back: {error}")
        return
    left_over = f", {removed} left over one(s) removed" if tree.version == 1 else ""
    done.append(f"{path}: limits taken back in {lifted} cgroup(s){left_over}")
