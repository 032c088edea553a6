"""Which mappings of a VMM back its guest's memory, among all that smaps lists."""

from nodeward.neighbours.formats.proc_files import Mapping

LEAST = 4 * 1024 * 1024
"""A smaller mapping is none of a guest's memory."""
_LIKELY = 64 * 1024 * 1024
"""Where the VMM does not say how much it gives its guest, a smaller nameless mapping is not taken for it."""
_ROUNDED = 2 * 1024 * 1024
_NAMES = ("memory-backend", "qemu_back_mem", "ch_ram", "guest_mem", "/dev/hugepages", "pc.ram", "ram-node")


def guest_ram(found: list[Mapping], told: int | None) -> tuple[int, int] | None:
    """How much of the guest's memory is resident, and how much there is of its mappings. `told`: what the VMM was told
    to give. None where no mapping is seen to be the guest's.

    A mapping is known by a VMM's name for it; else the largest ones are taken that together are as large as told.
    """
    able = [one for one in found if one.access.startswith("rw-") and one.size >= LEAST]
    named = [one for one in able if any(name in one.name for name in _NAMES)]
    if named:
        return _sum(named)
    plain = sorted((one for one in able if not one.name or one.name.startswith("/dev/shm")), key=_size, reverse=True)
    if told is None:
        return _sum([one for one in plain if one.size >= _LIKELY])
    chosen, left = list[Mapping](), told
    for one in plain:
        if one.size <= left + _ROUNDED:
            chosen.append(one)
            left -= one.size
        if left <= 0:
            return _sum(chosen)
    return None


def _size(one: Mapping) -> int:
    return one.size


def _sum(chosen: list[Mapping]) -> tuple[int, int] | None:
    return (sum(one.resident for one in chosen), sum(one.size for one in chosen)) if chosen else None
