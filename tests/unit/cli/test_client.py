"""What a person reads when the daemon's socket gives no answer."""

import socket
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from threading import Thread

import pytest

from nodeward.cli import client
from nodeward.cli.client import DaemonError


@pytest.fixture
def listener(tmp_path: Path) -> Iterator[socket.socket]:
    """A socket at `tmp_path/s` to which anybody may connect, and nobody is answered."""
    with closing(socket.socket(socket.AF_UNIX)) as one:
        one.bind(str(tmp_path / "s"))
        one.listen()
        yield one


def said(place: Path) -> str:
    with pytest.raises(DaemonError) as raised:
        client.get("/v1/status", str(place))
    return str(raised.value)


NOBODY = "no daemon listens at {}: start it (`nodeward node`), or give --socket or NODEWARD_SOCKET"


def test_where_no_socket_is_the_daemon_is_to_be_started(tmp_path: Path) -> None:
    assert said(tmp_path / "s").startswith(NOBODY.format(tmp_path / "s"))


def test_where_a_daemon_left_its_socket_behind_it_is_to_be_started(tmp_path: Path, listener: socket.socket) -> None:
    listener.close()
    assert said(tmp_path / "s").startswith(NOBODY.format(tmp_path / "s"))


def test_who_may_not_open_the_socket_is_told_who_may(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("http.client.HTTPConnection.request", refused)
    assert (
        said(tmp_path / "s")
        == f"{tmp_path}/s cannot be opened by this user: ask as the daemon's, which is root as a rule"
    )


@pytest.mark.usefixtures("listener")
def test_a_daemon_that_stands_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "TIMEOUT_S", 0.05)
    assert said(tmp_path / "s") == f"the daemon at {tmp_path}/s did not answer within 0.05 s; its log may say why"


@pytest.mark.parametrize(
    ("answer", "what"),
    [
        (b"hello\r\n\r\n", "what listens at {} speaks no HTTP: "),
        (b"HTTP/1.1 404 Not Found\r\nContent-Length: 2\r\n\r\nno", "{} answers HTTP 404: "),
    ],
    ids=["no HTTP", "another daemon's"],
)
def test_another_socket_is_named(tmp_path: Path, listener: socket.socket, answer: bytes, what: str) -> None:
    listener.settimeout(10)

    def babble() -> None:
        with closing(listener.accept()[0]) as one:
            one.recv(65536)
            one.sendall(answer)

    thread = Thread(target=babble)
    thread.start()
    assert said(tmp_path / "s").startswith(what.format(tmp_path / "s") + "is it another socket? The daemon's is")
    thread.join(10)
