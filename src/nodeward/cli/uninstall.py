"""`nodeward uninstall`: takes back what Nodeward changed on this node."""

import json
import os
import sys
from collections.abc import Iterable

import click

from nodeward.cli import exits

_WOULD = {
    "subtree": "switch the misc controller off again below {}",
    "limits": "take back every misc limit below {}",
    "nfd": "delete our NodeFeature object {} from the API server",
    "nrt": "delete our NodeResourceTopology object {} from the API server",
    "epc": "take sgx.intel.com/epc out of the status of the node {}",
    "kubevirt": "take KubeVirt's label cpumanager off the node {}",
    "slice": "delete the ResourceSlice of {} from the API server",
}

_UNREAD = "the undo list in {} cannot be read, or not removed: {}"


@click.command("uninstall")
@click.option("--config", "config_path", type=click.Path(dir_okay=False), help="Settings file (YAML).")
@click.option("--yes", is_flag=True, help="Do it; without this, only the list is shown.")
@click.option("--keys", "only_keys", is_flag=True, help="Only the TEE keys that kubelet is offered; asks the daemon.")
@click.option("--socket", help="With --keys: the daemon's socket.  [default: /run/nodeward/nodeward.sock]")
def command(config_path: str | None, yes: bool, only_keys: bool, socket: str | None) -> None:
    """Take back what Nodeward changed on this node and outlives pods. Limits of running pods vanish with it.

    With --keys the running daemon offers kubelet no keys from now on and deletes its NodeFeature and
    NodeResourceTopology objects; pods that run keep their keys. It offers keys again when it is started again, so set
    `publisher: none` first, or stop it afterwards. Without this, kubelet keeps the node's capacity for five minutes
    after the daemon's end, so that an upgrade changes nothing.

    Exit code: 0, 1 where something could not be taken back, 2 for wrong usage.

    \b
    Examples:
      nodeward uninstall --config /etc/nodeward.yaml         what would be taken back
      nodeward uninstall --config /etc/nodeward.yaml --yes   do it
      nodeward uninstall --keys --yes                        only the keys, at once
    """
    if only_keys:
        _take_back_keys(socket, config_path, yes)
        return
    if socket is not None:
        raise click.UsageError("--socket is the daemon's, which only --keys asks")
    from functools import partial

    from nodeward.features import by_claim
    from nodeward.features.cpus.effects import kubevirt_label, topology_object
    from nodeward.features.keys.effects import nfd_object
    from nodeward.features.limits.effects import node_epc
    from nodeward.host import process
    from nodeward.host.hostfs import OsFiles
    from nodeward.neighbours.kubelet.folder import left_behind
    from nodeward.programs.once.keys_left import keys_left, remove_sockets
    from nodeward.programs.once.uninstall import due, uninstall
    from nodeward.settings import load as settings

    chosen = settings.load(config_path, os.environ)
    files = OsFiles()
    nothing = f"nothing to take back: {chosen.state_dir} has no undo list, or an empty one"
    if not yes:
        try:
            found, left = due(files, chosen.state_dir), keys_left(chosen, files)
        except OSError as error:
            raise click.ClickException(_UNREAD.format(chosen.state_dir, error)) from error
        for line in (*found.ended, *found.untold):
            print(line)
        for change in found.changes:
            kind, _, path = change.target.partition(":")
            what = _WOULD[kind].format(path) if kind in _WOULD else change.target
            print(f"would {what}")
        sockets = left_behind(chosen.keys.kubelet_dir)
        for path in sockets:
            print(f"would remove {path}, which a daemon that was killed has left")
        if found.changes or sockets or not (found.ended or found.untold):
            print("with --yes it is done" if found.changes or sockets else nothing)
        _print_left(left)
        return
    lock = process.hold_lock(chosen.run_dir, "node")  # not beside a running daemon, which would switch it on again
    try:
        removals = {
            "epc": node_epc.remove,
            "kubevirt": kubevirt_label.remove,
            "nfd": nfd_object.remove,
            "nrt": topology_object.remove,
            "slice": by_claim.remove,
        }
        by_kind = {kind: partial(remove, chosen, os.environ) for kind, remove in removals.items()}
        left = keys_left(chosen, files)
        result = uninstall(chosen, files, by_kind)
        removed = tuple(remove_sockets(chosen, files))
    except OSError as error:
        raise click.ClickException(_UNREAD.format(chosen.state_dir, error)) from error
    finally:
        os.close(lock)
    for line in (*result.done, *removed) or (() if result.failed else (nothing,)):
        print(line)
    _print_left(left)
    for line in result.failed:
        print(line, file=sys.stderr)
    if result.failed:
        sys.exit(exits.FAILED)


def _print_left(sentences: Iterable[str]) -> None:
    for one in sentences:
        print(f"not taken back: {one}")


def _take_back_keys(socket: str | None, config_path: str | None, yes: bool) -> None:
    from nodeward.people import client

    if config_path is not None:
        raise click.UsageError("--keys asks the running daemon, which has its settings: leave --config out")
    if not yes:
        client.get("/v1/status", socket)
        print("would offer kubelet no keys, and delete our NodeFeature and NodeResourceTopology objects")
        print("with --yes it is done")
        return
    told = json.loads(client.get("/v1/decommission", socket, "POST"))
    print("\n".join(map(str, told)) or "nothing is offered: no row of keys.kinds has publisher device-plugin")
