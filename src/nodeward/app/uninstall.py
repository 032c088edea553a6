"""Takes back what the undo list says, newest first."""

from dataclasses import dataclass

from nodeward.aio.hostfs import HostFiles
from nodeward.app import undo
from nodeward.edges.cgroups import writer
from nodeward.model.settings import Settings


@dataclass(frozen=True, slots=True)
class TakenBack:
    """`done` and `failed` are sentences, one a change."""

    done: tuple[str, ...]
    failed: tuple[str, ...]


def uninstall(settings: Settings, files: HostFiles) -> TakenBack:
    """Undoes every change on the list; the list goes when all of it is undone."""
    done: list[str] = []
    failed: list[str] = []
    for change in reversed(undo.read(files, settings.state_dir)):
        kind, _, path = change.target.partition(":")
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
