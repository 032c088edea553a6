"""Asks a Kata shim for its guest's metrics, on the unix socket `shim-monitor.sock`. Never required.

The shim asks the guest, and a guest may hang or say anything: an answer may take PATIENCE_S and have MAX_BYTES.
"""

import asyncio

from nodeward.neighbours.kata import guest_meminfo

PATIENCE_S = 1.0
MAX_BYTES = 1024 * 1024
"""A real one has some 135 KB."""
_PIECE = 64 * 1024
_REQUEST = b"GET /metrics HTTP/1.0\r\nHost: shim\r\nConnection: close\r\n\r\n"
"""By HTTP/1.0 the answer is not in chunks, and ends with the connection."""


def places(sandbox: str) -> tuple[str, str]:
    """Where its socket may be: of the Go runtime, of runtime-rs."""
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
    return guest_meminfo.used(body, vm_memory) if mark and len(status) > 1 and status[1] == b"200" else None


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
