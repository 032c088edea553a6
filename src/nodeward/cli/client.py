"""Talks to the daemon's local socket: `http.client` over a unix socket, since people's commands must start fast."""

import http.client
import json
import os
import socket
from urllib.parse import quote

from nodeward.model.errors import NodewardError

DEFAULT_SOCKET = "/run/nodeward/nodeward.sock"
TIMEOUT_S = 5.0
MAX_BYTES = 64 * 1024 * 1024


class DaemonError(NodewardError):
    """The daemon did not answer, or answered that it cannot."""


class _UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: str) -> None:
        super().__init__("nodeward", timeout=TIMEOUT_S)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(TIMEOUT_S)
        self.sock.connect(self._path)


def socket_path(given: str | None) -> str:
    """The socket to ask: the flag, the environment, the default."""
    return given or os.environ.get("NODEWARD_SOCKET") or DEFAULT_SOCKET


def get(path: str, given_socket: str | None, method: str = "GET") -> bytes:
    """The body of what one request is answered. DaemonError says what to do."""
    place = socket_path(given_socket)
    connection = _UnixConnection(place)
    try:
        connection.request(method, path)
        response = connection.getresponse()
        body = response.read(MAX_BYTES)
    except (OSError, http.client.HTTPException) as error:
        raise DaemonError(_why_no_answer(place, error)) from error
    finally:
        connection.close()
    if response.status != 200:
        try:
            said = str(json.loads(body)["error"])
        except (ValueError, KeyError, TypeError):
            said = f"HTTP {response.status}"
        raise DaemonError(said)
    return body


def _why_no_answer(place: str, error: Exception) -> str:
    match error:
        case FileNotFoundError() | ConnectionRefusedError():
            remedy = "start it (`nodeward node`), or give --socket or NODEWARD_SOCKET where its run_dir is another"
            return f"no daemon listens at {place}: {remedy}"
        case PermissionError():
            return f"{place} cannot be opened by this user: ask as the daemon's, which is root as a rule"
        case TimeoutError():
            return f"the daemon at {place} did not answer within {TIMEOUT_S:g} s; its log may say why"
        case _:
            return f"no answer on {place}: {error}. Is it the socket of `nodeward node`?"


def explain_path(what: str) -> str:
    """The path that asks for sentences on `what`."""
    return f"/v1/explain?what={quote(what, safe='')}"
