"""What `nodeward uninstall` leaves of TEE keys, in sentences.

Taken away are sockets that a killed daemon has left. All else is kubelet's or NFD's, or pods may still need it: it
stays, and is named. A node on which no daemon could grant keys since the boot has no journal, and nothing of kubelet's
is named.
"""

from collections.abc import Iterator

from nodeward.core.errors import WireError
from nodeward.features.keys.device_ids import id_name
from nodeward.features.keys.effects import grants
from nodeward.features.keys.effects.grants import BOOT
from nodeward.features.keys.share import may_follow
from nodeward.features.keys.sums import is_tracked
from nodeward.features.settings import Settings
from nodeward.host.hostfs import HostFiles
from nodeward.neighbours.kubelet import checkpoint_file
from nodeward.neighbours.kubelet.folder import left_behind
from nodeward.programs.once.uninstall import due


def keys_left(settings: Settings, files: HostFiles) -> tuple[str, ...]:
    """A sentence for each thing that stays. To be asked before the undo list goes; OSError where that cannot be read.
    May sleep."""
    return (*_of_kubelet(settings, files), *_of_nfd(settings, files))


def remove_sockets(settings: Settings, files: HostFiles) -> Iterator[str]:
    """What came of each; kubelet takes away those that stay when it begins anew."""
    for path in left_behind(settings.keys.kubelet_dir):
        try:
            files.unlink(path)
        except OSError as error:
            yield f"{path} cannot be removed: {error.strerror or error}; kubelet's next start does it"
        else:
            yield f"{path}: removed, a daemon that was killed had left it"


def _of_nfd(settings: Settings, files: HostFiles) -> Iterator[str]:
    """NFD's master computes the number anew when our object has gone; it may be away, or gone for good. Where the undo
    list has no object of ours, the number is not ours either."""
    there = any(change.target.startswith("nfd:") for change in due(files, settings.state_dir).changes)
    rows = [row for key, row in settings.keys.kinds.items() if there and may_follow(key, row)]
    names = ", ".join(name for row in rows for name in row.resources if name != row.publish)
    if names:
        yield (
            f"the node's number of {names} stays as we had it until NFD's master has taken it back; where NFD has "
            "gone, nodeward doctor (keys-nfd-left) says what to do"
        )


def _of_kubelet(settings: Settings, files: HostFiles) -> tuple[str, ...]:
    journal = grants.path_in(settings.run_dir)
    try:
        files.stat(journal)
    except OSError:
        return ()
    noted = BOOT.path_in(settings.state_dir)
    stays = f"{journal} stays, and {noted}: by them a daemon that comes again knows which TEE keys pods were given; a "
    stays += "reboot voids them"
    return (*_registered(settings, files), *_on_node(settings), stays)


def _on_node(settings: Settings) -> Iterator[str]:
    """Kubelet takes no name out of its node's status again (`removedDevicePlugins` in its setters of the status)."""
    names = ", ".join(row.publish for row in settings.keys.kinds.values() if is_tracked(row))
    if names:
        yield f"the node's status goes on naming {names}, with 0 once the ids are gone: kubelet takes no name back"


def _registered(settings: Settings, files: HostFiles) -> Iterator[str]:
    keys = settings.keys
    place = f"{keys.kubelet_dir.rstrip('/')}/{checkpoint_file.PLACE}"
    begins = {row.publish: id_name(key, 0).removesuffix("0000") for key, row in keys.kinds.items() if row.publish}
    try:
        found = checkpoint_file.decode(files.read(place, checkpoint_file.MAX_BYTES), begins).registered
    except FileNotFoundError:
        return
    except (OSError, WireError) as error:
        yield f"whether kubelet still has ids of ours is not known: {place}: {error}"
        return
    for resource, ids in found.items():
        ours = sum(one.startswith(begins[resource]) for one in ids)
        if ours:
            yield (
                f"kubelet has {ours} healthy id(s) of {resource} from us: `nodeward uninstall --keys --yes` takes "
                "them back while the daemon runs; else they are in the node's capacity until five minutes after its end"
            )
