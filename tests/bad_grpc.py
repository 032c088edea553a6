"""A client of gRPC that is no gRPC."""

import socket

from nodeward.neighbours.formats import http2_frames as h2
from nodeward.neighbours.formats.header_blocks import encode_literals


def send_bad_path(path: str) -> None:
    """Sends a call whose `:path` is no UTF-8, as a flipped bit makes it: the loop of grpc.aio's server ends by it."""
    headers = (
        *((b":method", b"POST"), (b":scheme", b"http"), (b":path", b"/a.B/\xff"), (b":authority", b"n")),
        *((b"content-type", b"application/grpc"), (b"te", b"trailers")),
    )
    begins = h2.PREFACE + h2.encode_settings({})
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(5.0)
        client.connect(path)
        client.sendall(begins + h2.encode_headers(1, encode_literals(headers), h2.END_STREAM))
        while client.recv(4096):  # until the server has taken it, and is gone
            pass
