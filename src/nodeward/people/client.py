"""The client of the daemon's local socket, by `http.client`, since commands must start fast."""

import http.client
import json
import os
import socket
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeVar

from nodeward.core.errors import NodewardError
from nodeward.core.text import printable

if TYPE_CHECKING:
    from nodeward.people.relay_view import RelayView
    from nodeward.people.rows import NodeView

T = TypeVar("T")
DEFAULT_SOCKET = "/run/nodeward/nodeward.sock"
TIMEOUT_S = 5.0
MAX_BYTES = 64 * 1024 * 1024
PODAPI_SOCKET = "podapi.sock"


class DaemonError(NodewardError):
    """The daemon did not answer, or answered that it cannot."""


class AwayError(DaemonError):
    """The daemon did not answer."""


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


def get(path: str, given_socket: str | None, method: str = "GET", body: bytes | None = None) -> bytes:
    """The body of what one request, with `body`, is answered. DaemonError says what to do."""
    place = socket_path(given_socket)
    connection = _UnixConnection(place)
    try:
        connection.request(method, path, body)
        response = connection.getresponse()
        answer = response.read(MAX_BYTES)
    except (OSError, http.client.HTTPException) as error:
        raise AwayError(_why_no_answer(place, error)) from error
    finally:
        connection.close()
    if response.status != 200:
        try:
            said = str(json.loads(answer)["error"])
        except (ValueError, KeyError, TypeError):
            said = f"{place} answers HTTP {response.status}: {_OTHER}"
        raise DaemonError(said)
    return answer


def decoded(answer: bytes, kind: type[T]) -> T:
    """What was answered. DaemonError for an answer of another version."""
    import msgspec

    try:
        return msgspec.json.decode(answer, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise DaemonError(f"an answer of another version of Nodeward: {printable(str(error), 300)}") from error


_OTHER = "is it another socket? The daemon's is nodeward.sock, the Pod API's podapi.sock"


def podapi(given_socket: str | None, path: str, request: object = None) -> bytes:
    """The Pod API's answer: a GET without a request, else a POST of it. The socket is beside the daemon's."""
    place = given_socket or os.path.join(os.path.dirname(socket_path(None)), PODAPI_SOCKET)
    try:
        if request is None:
            return get(path, place)
        return get(path, place, "POST", json.dumps(request).encode())
    except AwayError as error:
        raise DaemonError(f"{error}. The Pod API is served where podapi.enabled is true") from error


def _why_no_answer(place: str, error: Exception) -> str:
    match error:
        case FileNotFoundError() | ConnectionRefusedError():
            remedy = "start it (`nodeward node`), or give --socket or NODEWARD_SOCKET where its run_dir is another"
            return f"no daemon listens at {place}: {remedy}"
        case PermissionError():
            return f"{place} cannot be opened by this user: ask as the daemon's, which is root as a rule"
        case TimeoutError():
            return f"the daemon at {place} did not answer within {TIMEOUT_S:g} s; its log may say why"
        case http.client.HTTPException():
            return f"what listens at {place} speaks no HTTP: {_OTHER}"
        case _:
            return f"no answer on {place}: {error}"


# ---- the relay, beside the daemon

UNDECIDED, UNLIMITED = "no node daemon: nothing is decided, see on_error", "no node daemon: no limits"


@dataclass(frozen=True, slots=True)
class Heard:
    """What came of asking the relay: its picture, or why there is none though its socket is there."""

    view: "RelayView | None" = None
    fault: str = ""


def relay(given_socket: str | None) -> Heard:
    """The relay with a socket in the daemon's folder."""
    from nodeward.core.errors import WireError
    from nodeward.neighbours.cri import relay_line
    from nodeward.people.relay_view import RelayView

    place = os.path.join(os.path.dirname(socket_path(given_socket)), relay_line.SOCKET)
    end, line = time.monotonic() + TIMEOUT_S, b""
    try:
        with socket.socket(socket.AF_UNIX) as asked:
            asked.settimeout(TIMEOUT_S)
            asked.connect(place)
            asked.sendall(relay_line.encode_request(relay_line.STATUS))
            while len(line) <= relay_line.MAX_ANSWER:
                asked.settimeout(max(end - time.monotonic(), 0.001))
                piece = asked.recv(1 << 16)
                if not piece:
                    break
                line += piece
        return Heard(relay_line.decode_answer(line, RelayView))
    except (FileNotFoundError, ConnectionRefusedError):
        return Heard()
    except (OSError, WireError) as error:
        return Heard(fault=f"no answer of the relay at {place}: {error}")


def node(given_socket: str | None) -> "NodeView":
    """The node, daemon and relay as one; the relay's picture where the daemon is away. AwayError where both are."""
    from nodeward.people.rows import NodeView

    heard = relay(given_socket)
    try:
        view = decoded(get("/v1/status", given_socket), NodeView)
    except AwayError:
        if heard.view is None:
            raise
        return alone(heard.view)
    return _judged(replace(view, relay=heard.view, relay_fault=heard.fault))


def alone(relay: "RelayView") -> "NodeView":
    """The relay's picture, as the node's."""
    from nodeward.people.rows import NodeView

    said = UNDECIDED if relay.daemon.wants else UNLIMITED
    return _judged(NodeView("off", "relay", "off", True, {}, {}, (), relay=relay, alone=said))


def _judged(view: "NodeView") -> "NodeView":
    """With the verdict on it."""
    from nodeward.people.verdict import verdict

    return replace(view, verdict=verdict(view))
