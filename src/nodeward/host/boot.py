"""Which boot of the machine this is, by which a file tells what it says of an earlier one: that is void, since neither
virtual machines nor cgroups outlive the kernel."""

import errno

from nodeward.host.hostfs import HostFiles

BOOT_ID = "/proc/sys/kernel/random/boot_id"
MAX_BYTES = 64


def boot_id(files: HostFiles) -> str:
    """The kernel's name of this boot; never empty. OSError where it cannot be told. May sleep."""
    try:
        boot = files.read(BOOT_ID, MAX_BYTES).decode("ascii").strip()
    except UnicodeDecodeError as error:
        raise OSError(errno.EILSEQ, "is no text", BOOT_ID) from error
    if not boot:
        raise OSError(errno.ENODATA, "is empty", BOOT_ID)
    return boot
