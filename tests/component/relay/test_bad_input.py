"""What neither end should do, at a relay as it is installed: runtimes that break off, versions and encodings that
nobody knows, compressed calls, settings of 10 MiB. Frames that cannot be followed are in tests/unit/transport."""

from __future__ import annotations

import contextlib
import gzip
import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import grpc
import pytest

from nodeward.proto import cri_pb2 as cri
from tests.component.relay.rig import WAIT_S, call, client_of, log_of, relay_process, runtime_at
from tests.component.relay.test_limits import ANNOTATIONS, create, got, kernel, node, runtime
from tests.peers.tap import tapped
from tests.unit.transport.strict import DATA, END_HEADERS, HEADERS, PREFACE, frame, frames, message

HALF = frame(DATA, 0, 1, b"\0\0\1\0\0" + bytes(100))
"""Of a message of 64 KiB."""
BREAKS = {
    "in the middle of a message": HALF,
    "in the middle of a frame": HALF[:60],
    "in the middle of a header block": frame(HEADERS, 0, 1, b"\x88"),
    "by a reset in the middle of a message": HALF + frame(3, 0, 1, struct.pack(">I", 2)),
}
OK = frame(HEADERS, END_HEADERS, 1, b"\x88\x5f\x10application/grpc")


@contextmanager
def breaking(path: Path, told: bytes, abrupt: bool) -> Iterator[list[bytes]]:
    """A runtime that answers a call with these bytes, and goes; what it got."""
    seen: list[bytes] = []

    def serve() -> None:
        with contextlib.suppress(OSError):  # the end of the block
            while True:
                link, _ = listening.accept()
                with link:
                    link.sendall(frame(4, 0, 0))
                    got = b""
                    while b"Version" not in got and (data := link.recv(65_536)):
                        got += data
                    seen.append(got)
                    link.sendall(told)
                    if not abrupt:
                        link.settimeout(WAIT_S)
                        link.recv(1)

    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(path))
        listening.listen()
        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield seen
        listening.shutdown(socket.SHUT_RDWR)
    path.unlink()


@pytest.mark.parametrize("how", BREAKS)
def test_a_runtime_that_breaks_off_half_way_costs_that_call_and_no_other(tmp_path: Path, how: str) -> None:
    """The client is told, by whatever it makes of it, and what it calls next is answered by the runtime that comes."""
    listen, behind = tmp_path / "cri.sock", tmp_path / "runtime.sock"
    told = BREAKS[how] if how.endswith("block") else OK + BREAKS[how]
    with breaking(behind, told, "by a reset" not in how) as seen, relay_process(listen, behind) as process:
        with client_of(listen) as channel, pytest.raises(grpc.RpcError) as caught:
            call(channel, "Version", b"Version")
        assert caught.value.code() in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.INTERNAL)
        assert [b"Version" in one for one in seen] == [True]
        assert process.poll() is None
        # the runtime goes, and a whole one comes
        behind.rename(tmp_path / "aside")
        with runtime_at(behind), client_of(listen) as channel:
            assert call(channel, "Version", b"v") == b"v"
        (tmp_path / "aside").rename(behind)
    assert "lost_sight=0" in log_of(listen)


@pytest.mark.parametrize("path", ["runtime.v7.RuntimeService/Version", "runtime.v1.TeaService/Brew", "x/y", "Unknown"])
def test_versions_services_and_methods_that_nobody_knows_are_the_runtimes_to_judge(tmp_path: Path, path: str) -> None:
    with node(tmp_path) as (listen, made), client_of(listen) as channel, client_of(tmp_path / "runtime.sock") as direct:
        told = []
        for way in (channel, direct):
            try:
                told.append(repr(way.unary_unary(f"/{path}")(b"x", timeout=WAIT_S)))
            except grpc.RpcError as error:
                told.append(f"{error.code()} {error.details()}" if isinstance(error, grpc.Call) else "")
        assert told[0] == told[1]
        assert [request for _, request in made.got if request == b"x"] == ([] if path == "Unknown" else [b"x"] * 2)
    assert "lost_sight=0" in log_of(listen)


def bodies(sent: bytes) -> list[bytes]:
    """The DATA of each call of a connection."""
    found: dict[int, bytes] = {}
    for kind, _, stream, payload in frames(sent[len(PREFACE) :]):
        if kind == DATA:
            found[stream] = found.get(stream, b"") + payload
    return list(found.values())


def test_a_compressed_create_is_decided_and_sent_on_uncompressed(tmp_path: Path) -> None:
    """grpcio's own gzip, as the wire on both sides of the relay shows it; what gzip does not shorten it sends plain."""
    listen, near, far, behind = (tmp_path / f"{name}.sock" for name in ("cri", "near", "far", "runtime"))
    long = create({**ANNOTATIONS, "more": "x" * 500})
    with (
        runtime_at(behind, runtime) as made,
        tapped(far, behind) as beyond,
        relay_process(listen, far, *kernel(tmp_path)),
        tapped(near, listen) as before,
        grpc.insecure_channel(f"unix:{near}", compression=grpc.Compression.Gzip) as channel,
    ):
        channel.unary_unary("/runtime.v1.RuntimeService/CreateContainer")(long, timeout=WAIT_S)
        assert call(channel, "Version", b"v" * 1000) == b""
    asked, passed = bodies(bytes(before.sent[0]))
    assert (asked[0], passed[0]) == (1, 1)
    assert gzip.decompress(asked[5:]) == long
    assert len(asked) < len(long)
    born = got(made, "CreateContainer")
    assert [[message(born), passed]] == [one for one in map(bodies, map(bytes, beyond.sent)) if passed in one]
    assert born.startswith(long)
    assert dict(cri.CreateContainerRequest.FromString(born).config.linux.resources.unified) == {
        "misc.max": "sgx_epc 8192"
    }
    assert got(made, "Version") == b"v" * 1000
