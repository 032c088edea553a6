"""`nodeward vms volume`: Kata's direct volumes, which a VM mounts itself. Only `hold` asks the daemon."""

import os
import stat
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Final

import click

from nodeward.cli import exits
from nodeward.cli.flags import output_option, print_data

if TYPE_CHECKING:
    from subprocess import Popen

RENEW_S: Final = 5.0
"""How often a lease is renewed."""
_FOLDER = click.option(
    "--folder",
    default="/run/kata-containers/shared/direct-volumes",
    show_default=True,
    help="Where Kata looks for direct volumes.",
)


@click.group("volume")
def command() -> None:
    """Check, add, remove and list volumes that a VM of Kata mounts itself (mountInfo.json).

    \b
    Examples:
      nodeward vms volume list
      nodeward vms volume check
      nodeward vms volume add /var/lib/kubelet/pods/U/volumes/V/mount --device /dev/sdb --fstype ext4
      nodeward vms volume remove /var/lib/kubelet/pods/U/volumes/kubernetes.io~csi/pvc-1/mount
      nodeward vms volume hold /data -- mount /dev/sdb /data
    """


@command.command("check", short_help="Say every fault, with its remedy.")
@click.argument("places", metavar="[FILE|FOLDER]...", nargs=-1)
@_FOLDER
@output_option()
def check(places: tuple[str, ...], folder: str, output: str) -> None:
    """Say every fault of these files, with its remedy: a mountInfo.json, a volume's folder, or a folder of volumes.

    Without a name the node's own folder is checked. Values that look like secrets are faults, and are not printed.

    Exit code: 0 without a fault, 1 with one, 2 for wrong usage.

    \b
    Examples:
      nodeward vms volume check
      nodeward vms volume check ./mountInfo.json
      nodeward vms volume check -o json | jq -r '.faults[] | "\\(.file): \\(.fault)"'
    """
    faults = [(file, fault) for place in places or (folder,) for file, fault in _faults(os.path.abspath(place))]
    report(faults, output)


@contextmanager
def told() -> Iterator[None]:
    """What the system refuses in the block ends the command with one line that names the file and a remedy."""
    from nodeward.core.errors import NodewardError

    try:
        yield
    except PermissionError as error:
        raise NodewardError(f"{error.filename}: {error.strerror}; run this as root") from error
    except (OSError, ValueError) as error:
        raise NodewardError(str(error)) from error


def report(faults: Sequence[tuple[str, str]], output: str) -> None:
    """Prints which file has which fault, and ends with 1 if there is any."""
    from nodeward.core.text import printable

    if not print_data({"faults": [{"file": file, "fault": fault} for file, fault in faults]}, output):
        for file, fault in faults:
            print(f"{printable(file)}: {printable(fault)}")
        if not faults:
            print("no faults")
    if faults:
        sys.exit(exits.FAILED)


def _faults(place: str) -> list[tuple[str, str]]:
    from nodeward.core.errors import WireError
    from nodeward.host.hostfs import OsFiles
    from nodeward.neighbours.kata import direct_volume, volumes

    files = OsFiles()
    try:
        if not files.stat(place).is_dir:
            read = direct_volume.read(files.read(place, direct_volume.MAX_BYTES))
            return [(place, fault) for fault in read.faults]
        found = volumes.in_folder(files, place)
    except FileNotFoundError:
        if place == volumes.FOLDER:
            return []  # no volume was ever added
        return [(place, "is not there; name a mountInfo.json, or a folder with some")]
    except (OSError, WireError) as error:
        return [(place, error.fault if isinstance(error, WireError) else os.strerror(error.errno or 0))]
    return [(one.place, fault) for one in found for fault in one.faults]


@command.command("list", short_help="List volumes, and which sandbox has taken each.")
@_FOLDER
@output_option()
def list_volumes(folder: str, output: str) -> None:
    """List the direct volumes of this node: path, device, file system, and the sandbox that has taken it.

    \b
    Examples:
      nodeward vms volume list
      nodeward vms volume list -o json | jq -r '.[] | select(.sandboxes == []) | .path'
    """
    from nodeward.core.text import printable
    from nodeward.host.hostfs import OsFiles
    from nodeward.neighbours.kata import volumes

    with told():
        found = volumes.listed(OsFiles(), os.path.abspath(folder))
    if print_data(found, output):
        return
    if not found:
        print(f"no volumes in {printable(folder)}")
    for one in found:
        what = f"{one.info.device} {one.info.fs_type}" if one.info is not None else "-"
        faults = f"  {len(one.faults)} fault(s), see nodeward vms volume check" if one.faults else ""
        print(printable(f"{one.path or one.place}  {what}  sandbox {', '.join(one.sandboxes) or '-'}{faults}"))


@command.command("add", short_help="Let the VM mount a device itself.")
@click.argument("path")
@click.option("--device", required=True, metavar="PATH", help="The block device or disk image on the host.")
@click.option("--fstype", required=True, metavar="NAME", help="The file system on it, such as ext4.")
@click.option("--type", "kind", default="block", show_default=True, help="Kata's volume-type.")
@click.option("--option", "options", multiple=True, metavar="WORD", help="A mount option; may be given again.")
@click.option("--metadata", multiple=True, metavar="KEY=VALUE", help="Such as fsGroup=1000; may be given again.")
@_FOLDER
def add(
    path: str, device: str, fstype: str, kind: str, options: tuple[str, ...], metadata: tuple[str, ...], folder: str
) -> None:
    """Let the VM mount a device itself in place of the volume at PATH, the mount's source as the container has it.

    Call it after the volume is attached and before the pod's sandbox starts. The host must not mount the device.
    What looks like a secret is refused: the file lies on the host in the clear.

    Exit code: 0, 1 where it is refused, 2 for wrong usage.

    \b
    Examples:
      nodeward vms volume add /var/lib/kubelet/pods/U/volumes/V/mount --device /dev/sdb --fstype ext4
      nodeward vms volume add /data --device /dev/sdc --fstype xfs --option ro --metadata fsGroup=1000
    """
    from nodeward.core.errors import NodewardError
    from nodeward.core.text import printable
    from nodeward.host.hostfs import OsFiles
    from nodeward.neighbours.kata import volumes
    from nodeward.neighbours.kata.direct_volume import MountInfo

    pairs = dict[str, str]()
    for one in metadata:
        name, mark, value = one.partition("=")
        if not mark or not name:
            raise click.UsageError("--metadata takes KEY=VALUE, such as fsGroup=1000")
        pairs[name] = value
    if kind == "block" and (why := _no_device(device)):
        raise NodewardError(f"--device {printable(device, 300)}: {why}")
    info = MountInfo(device, fstype, kind, pairs, options)
    with told():
        print(volumes.write(OsFiles(), path, info, os.path.abspath(folder)))


def _no_device(path: str) -> str:
    """Why this is no block device and no disk image; empty where it is one, or where its form is refused later."""
    if not path.startswith("/"):
        return ""
    try:
        mode = os.stat(path).st_mode
    except OSError as error:
        return f"{error.strerror}; attach the volume first, or name the device that it is attached as"
    return "" if stat.S_ISBLK(mode) or stat.S_ISREG(mode) else "is neither a block device nor a disk image"


@command.command("remove", short_help="Remove a volume.")
@click.argument("path")
@click.option("--force", is_flag=True, help="Also while a sandbox has recorded itself there.")
@_FOLDER
def remove(path: str, force: bool, folder: str) -> None:
    """Remove the volume at PATH from Kata's folder. One that is not there is no error.

    Exit code: 0, 1 where a sandbox still has it, 2 for wrong usage.

    \b
    Example:
      nodeward vms volume remove /var/lib/kubelet/pods/U/volumes/kubernetes.io~csi/pvc-1/mount
    """
    from nodeward.host.hostfs import OsFiles
    from nodeward.neighbours.kata import volumes

    with told():
        gone = volumes.remove(OsFiles(), path, os.path.abspath(folder), force=force)
    print("removed" if gone else "was not there")


@command.command("hold", short_help="Run a command that mounts a volume on the host.")
@click.argument("path")
@click.argument("words", metavar="-- COMMAND...", nargs=-1, required=True, type=click.UNPROCESSED)
@click.option("--socket", metavar="PATH", help="The Pod API's socket; without it podapi.sock beside the daemon's.")
def hold(path: str, words: tuple[str, ...], socket: str | None) -> None:
    """Run COMMAND while the host has the volume at PATH, the mount's source as the container has it.

    The daemon refuses where a VM, or another process of the host, has the volume; COMMAND is not run then. Meanwhile
    no VM gets it. A lease that cannot be renewed for its 30 seconds ends COMMAND; one of a process that died runs out.

    Exit code: that of COMMAND, 1 where the volume is refused or the lease is lost, 2 for wrong usage.

    \b
    Example:
      nodeward vms volume hold /data -- mount /dev/sdb /data
    """
    import subprocess

    from nodeward.core.errors import NodewardError
    from nodeward.people import client

    holder = f"nodeward vms volume hold (process {os.getpid()})"
    until = _held(socket, path, holder)
    child = None
    try:
        try:
            child = subprocess.Popen(words)
        except OSError as error:
            raise NodewardError(f"{words[0]} cannot be run: {error.strerror}; give a command that is there") from error
        code = _watched(child, lambda: _held(socket, path, holder), until)
    finally:
        if child is None or _is_over(child):
            with suppress(client.DaemonError):  # then it runs out
                client.podapi(socket, "/v1/HoldVolume", {"path": path, "holder": holder, "release": True})
    sys.exit(code if code >= 0 else 128 - code)


def _held(socket: str | None, path: str, holder: str) -> float:
    """Until when the host has the volume, by the monotonic clock. NodewardError where it has not."""
    import json
    import time

    from nodeward.core.errors import NodewardError
    from nodeward.core.text import printable
    from nodeward.people import client

    asked_s = time.monotonic()
    said = json.loads(client.podapi(socket, "/v1/HoldVolume", {"path": path, "holder": holder}))
    if not said["held"]:
        raise NodewardError(printable(f"{path} must not be mounted on the host: {said['why']}"))
    return asked_s + float(said["lease_s"])


def _watched(child: "Popen[bytes]", renewed: Callable[[], float], until: float) -> int:
    """The command's exit code. NodewardError where the lease is lost."""
    import time
    from subprocess import TimeoutExpired

    from nodeward.core.errors import NodewardError
    from nodeward.people import client

    while True:
        with suppress(TimeoutExpired):
            return child.wait(RENEW_S)
        try:
            until = renewed()
        except client.DaemonError as error:
            if time.monotonic() >= until - 2 * RENEW_S:
                raise NodewardError(f"the command was ended, since its lease runs out: {error}") from error


def _is_over(child: "Popen[bytes]") -> bool:
    """Ends a command that was left; whether it has ended."""
    from subprocess import TimeoutExpired

    for end in (child.terminate, child.kill):
        if child.poll() is None:
            end()
            with suppress(TimeoutExpired):
                child.wait(RENEW_S)
    return child.poll() is not None
