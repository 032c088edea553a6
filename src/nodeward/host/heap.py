"""Sets glibc's allocator to give freed memory back.

By itself glibc gives memory at the heap's end back to the kernel as soon as a message of some 100 KiB is done with, and
fetches it anew, page by page, for the next one: half of what a review of 200 KiB costs.

Must not: matter. Where the C library has no such setting nothing happens.
"""

import ctypes

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # malloc.h of glibc
KEPT_BYTES = 16 * 1024 * 1024
"""So much that is free at the heap's end stays with the process."""
MAPPED_BYTES = 2 * 1024 * 1024
"""What is larger has memory of its own, which goes back to the kernel at once. Fixed, since glibc would move it."""


def keep_freed_memory() -> bool:
    """Lets the process keep freed memory, from now on; whether the C library took it."""
    try:
        setting = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return False
    return bool(setting(_M_MMAP_THRESHOLD, MAPPED_BYTES)) and bool(setting(_M_TRIM_THRESHOLD, KEPT_BYTES))
