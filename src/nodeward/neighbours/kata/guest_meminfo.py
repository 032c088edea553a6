"""How much memory a guest says it uses: the metric `kata_guest_meminfo` of a shim's `/metrics`.

Source: kata-containers `src/agent/src/metrics.rs`. The labels are `item="mem_total"` and so on; documents also have
`memtotal`. Bytes by the agent's library; where a total is far below the VM's size, KiB as /proc/meminfo has them.
"""

import re

_ROW = re.compile(rb'kata_guest_meminfo\{[^}]*?item="mem_?(total|free|available)"[^}]*\} ([0-9.eE+]{1,32})')
_MOST = 512
"""Bytes of a line: a guest may say anything, and a longer line would take long to match."""
_KIB = 1024
_FAR = 64


def used(text: bytes, vm_memory: int | None) -> int | None:
    """Total less what is available, in bytes; an older kernel tells only what is free. None where it does not tell."""
    found: dict[bytes, int] = {}
    rows = [_ROW.match(line) for line in text.split(b"\n") if len(line) <= _MOST]
    for name, value in (row.groups() for row in rows if row is not None):
        try:
            found[name] = int(float(value))
        except (ValueError, OverflowError):
            return None
    total, left = found.get(b"total"), found.get(b"available") or found.get(b"free")
    if total is None or left is None or not 0 <= left <= total:
        return None
    unit = _KIB if vm_memory is not None and total * _FAR < vm_memory else 1
    return (total - left) * unit
