"""Reads what a node has of SGX: its device nodes in /dev, and how much enclave memory each NUMA node has.

udev makes the device nodes once the driver is up, and that can be after the daemon's start, so they are looked for
again and again. The memory is in /sys/devices/system/node/node<N>/x86/sgx_total_bytes since Linux 5.17
(Documentation/ABI/stable/sysfs-devices-node). Must not decide what follows.
"""

import os
import re
from collections.abc import Iterator, Sequence
from functools import partial

from nodeward.core.devices import DeviceNode
from nodeward.core.events import EnclavesSeen
from nodeward.core.ports import Tell
from nodeward.host.clock import Clock
from nodeward.host.hostfs import HostFiles
from nodeward.host.lanes import GivenUpError, Lane, done_on

LOOK_S = 1.0
NODES = "/sys/devices/system/node"
_NODE = re.compile(r"node([0-9]{1,5})")
_MAX_BYTES = 64


def look(files: HostFiles, paths: Sequence[str]) -> EnclavesSeen:
    """What is there now, of device nodes those at these paths."""
    nodes, missing = list[DeviceNode](), dict[str, str]()
    for path in paths:
        try:
            number = files.stat(path).character
        except OSError as error:
            missing[path] = "not there" if isinstance(error, FileNotFoundError) else str(error.strerror or error)
            continue
        if number:
            nodes.append(DeviceNode(path, os.major(number), os.minor(number)))
        else:
            missing[path] = "no character device"
    return EnclavesSeen(tuple(nodes), missing, dict(_memory(files)))


async def keep_looking(paths: Sequence[str], files: HostFiles, lane: Lane, tell: Tell, clock: Clock) -> None:
    """Tells what is there whenever that has changed, until cancelled."""
    told: EnclavesSeen | None = None
    while True:
        found: EnclavesSeen | None
        try:
            found = await done_on(lane, "enclaves", partial(look, files, paths))
        except (OSError, GivenUpError) as error:  # it hangs: what was there may not be any more
            missing = dict.fromkeys(paths, f"not looked at: {error or 'the look hangs in the kernel'}")
            found = EnclavesSeen((), missing, told.memory) if told is not None else None
        if found is not None and found != told:
            told = found
            tell(found)
        await clock.sleep(LOOK_S)


def _memory(files: HostFiles) -> Iterator[tuple[int, int]]:
    try:
        names = files.listdir(NODES)
    except OSError:
        return
    for name in names:
        if (found := _NODE.fullmatch(name)) is None:
            continue
        try:
            text = files.read(f"{NODES}/{name}/x86/sgx_total_bytes", _MAX_BYTES).strip()
        except OSError:
            continue
        if text.isdigit() and int(text):
            yield int(found[1]), int(text)
