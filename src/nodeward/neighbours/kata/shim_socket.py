"""Asks a Kata shim for its guest's metrics, on the unix socket `shim-monitor.sock`. Never required.

The shim asks the guest, and a guest may hang or say anything: an answer may take PATIENCE_S and have MAX_BYTES.
"""

import asyncio
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


PATIENCE_S = 1.0
MAX_BYTES = 1024 * 1024
"""A real one has some 135 KB."""
_PIECE = 64 * 1024
_REQUEST = b"GET /metrics HTTP/1.0\r\nHost: shim\r\nConnection: close\r\n\r\n"
"""By HTTP/1.0 the answer is not in chunks, and ends with the connection."""


def places(sandbox: str) -> tuple[str, str]:
    """The possible paths of a shim's socket: of the Go runtime, of runtime-rs."""
    return f"/run/vc/sbs/{sandbox}/shim-monitor.sock", f"/run/kata/{sandbox}/shim-monitor.sock"


async def guest_used(path: str, vm_memory: int | None) -> int | None:
    """What the guest uses; None where it cannot be told. Raises nothing but a cancellation."""
    try:
        async with asyncio.timeout(PATIENCE_S):
            text = await _exchange(path)
    except (OSError, TimeoutError):
        return None
    head, mark, body = text.partition(b"\r\n\r\n")
    status = head.split(None, 2)
    return used(body, vm_memory) if mark and len(status) > 1 and status[1] == b"200" else None


async def _exchange(path: str) -> bytes:
    """The whole answer; empty for one that is too long."""
    reader, writer = await asyncio.open_unix_connection(path, limit=_PIECE)
    try:
        writer.write(_REQUEST)
        pieces, size = list[bytes](), 0
        while piece := await reader.read(_PIECE):
            pieces.append(piece)
            size += len(piece)
            if size > MAX_BYTES:
                return b""
        return b"".join(pieces)
    finally:
        writer.transport.abort()
