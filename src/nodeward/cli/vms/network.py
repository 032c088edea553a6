"""`nodeward vms network`: Kata's files for directly attachable networks (DAN). Asks no daemon."""

import os
from typing import BinaryIO

import click

from nodeward.cli.flags import output_option
from nodeward.cli.vms.volume import report, told

_FOLDER = click.option(
    "--folder", default="/run/kata-containers/dans", show_default=True, help="Kata's dan_conf, where it looks for them."
)


@click.group("network")
def command() -> None:
    """Check and write files that give a VM of Kata devices of the host as its interfaces (DAN).

    \b
    Examples:
      nodeward vms network check
      nodeward vms network check ./dan.json
      nodeward vms network write SANDBOX --from dan.json
    """


@command.command("check", short_help="Say every fault, with its path and remedy.")
@click.argument("places", metavar="[FILE|FOLDER]...", nargs=-1)
@_FOLDER
@output_option()
def check(places: tuple[str, ...], folder: str, output: str) -> None:
    """Say every fault of these DAN files, with its path and remedy. One fault, and Kata starts no sandbox by the file.

    Without a name the node's own folder is checked.

    Exit code: 0 without a fault, 1 with one, 2 for wrong usage.

    \b
    Examples:
      nodeward vms network check
      nodeward vms network check ./dan.json -o json
    """
    report([fault for place in places or (folder,) for fault in _faults(os.path.abspath(place))], output)


def _faults(place: str) -> list[tuple[str, str]]:
    from nodeward.core.errors import WireError
    from nodeward.host.hostfs import OsFiles
    from nodeward.neighbours.kata import dan, network

    files = OsFiles()
    try:
        if not files.stat(place).is_dir:
            return [(place, fault) for fault in dan.read(files.read(place, dan.MAX_BYTES)).faults]
        found = network.listed(files, place)
    except FileNotFoundError:
        if place == network.DANS:
            return []  # no plugin ever wrote one
        return [(place, "is not there; name a DAN file, or a folder with some")]
    except (OSError, WireError) as error:
        return [(place, error.fault if isinstance(error, WireError) else os.strerror(error.errno or 0))]
    return [(one.file, fault) for one in found for fault in one.faults]


@command.command("write", short_help="Check a file and put it where Kata reads it.")
@click.argument("sandbox")
@click.option("--from", "source", type=click.File("rb"), default="-", help="The DAN file's content; else stdin.")
@_FOLDER
def write(sandbox: str, source: BinaryIO, folder: str) -> None:
    """Check a DAN file and put it where Kata reads it, before the sandbox starts. SANDBOX is CNI's container id.

    Exit code: 0, 1 with a fault (nothing is written), 2 for wrong usage.

    \b
    Examples:
      nodeward vms network write 5b0c --from dan.json
      my-plugin | nodeward vms network write "$CNI_CONTAINERID"
    """
    from nodeward.host.hostfs import OsFiles
    from nodeward.neighbours.kata import dan, network

    with told():
        print(network.write(OsFiles(), sandbox, source.read(dan.MAX_BYTES + 1), os.path.abspath(folder)))
