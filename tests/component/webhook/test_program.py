"""`nodeward webhook` as a process: thousands of connections, signals, settings, memory."""

import http.client
import os
import re
import resource
import signal
import socket
import ssl
import time
from contextlib import ExitStack
from pathlib import Path

import pytest

from nodeward.edges.webhook.server import PATH
from tests.component.webhook.support import (
    GOOD,
    JSON_TYPE,
    REQUEST,
    WITHIN_S,
    install,
    port_of,
    post,
    program,
)
from tests.peers.find import absent

DESCRIPTORS = resource.getrlimit(resource.RLIMIT_NOFILE)[1]


def trust(pki: Path) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=str(pki / "ca.crt"))


def test_ten_thousand_connections_that_say_nothing_do_not_lock_anybody_out(pki: Path, tmp_path: Path) -> None:
    if DESCRIPTORS < 10_500:
        absent(f"at most {DESCRIPTORS} descriptors: ulimit -n 11000 for this test")
    install(pki, "first", tmp_path)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, 10_500)), hard))
    try:
        with program(tmp_path) as process, ExitStack() as held:
            port, context = port_of(process), trust(pki)
            known = http.client.HTTPSConnection("127.0.0.1", port, timeout=WITHIN_S, context=context)
            held.callback(known.close)
            known.request("POST", PATH, GOOD, JSON_TYPE)
            known.getresponse().read()
            for _ in range(10_000):
                one = socket.create_connection(("127.0.0.1", port), timeout=WITHIN_S)
                held.callback(one.close)
            known.request("POST", PATH, GOOD, JSON_TYPE)
            assert known.getresponse().status == 200
            assert post(port, context) == 200
            assert len(os.listdir(f"/proc/{process.pid}/fd")) < 2_100
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_at_sigterm_what_has_begun_is_answered_and_nobody_new_comes_in(pki: Path, tmp_path: Path) -> None:
    install(pki, "first", tmp_path)
    with program(tmp_path) as process:
        port, context = port_of(process), trust(pki)
        begun, idle = (
            context.wrap_socket(socket.create_connection(("127.0.0.1", port), WITHIN_S), server_hostname="127.0.0.1")
            for _ in range(2)
        )
        idle.sendall(REQUEST)
        assert b"200" in idle.recv(100)
        begun.sendall(REQUEST[:200])
        link = http.client.HTTPSConnection("127.0.0.1", port, timeout=WITHIN_S, context=context)
        link.request("GET", "/readyz")  # answered after the bytes above were: they are in one loop
        assert link.getresponse().status == 200
        link.close()

        process.send_signal(signal.SIGTERM)
        end = time.monotonic() + WITHIN_S
        while refused(port) is False:
            assert time.monotonic() < end
        while idle.recv(4096):
            pass  # the rest of its answer, and then its end: it is closed first
        begun.sendall(REQUEST[200:])
        said = begun.recv(100)
        assert b"200" in said, said
        assert process.wait(WITHIN_S) == 0
        assert process.stderr is not None
        assert re.search(r" webhook ends allowed=\d+ patched=\d+ refused=0 .*\bturned_away=0\n", process.stderr.read())
        for one in (begun, idle):
            one.close()


def refused(port: int) -> bool:
    """Whether nobody listens there."""
    try:
        socket.create_connection(("127.0.0.1", port), WITHIN_S).close()
    except ConnectionRefusedError:
        return True
    except ConnectionResetError:
        pass  # it stood in the queue of the socket that is being closed
    return False


def test_a_new_certificate_is_used_without_a_restart(pki: Path, tmp_path: Path) -> None:
    install(pki, "first", tmp_path)

    def shown(port: int) -> object:
        with (
            socket.create_connection(("127.0.0.1", port), WITHIN_S) as plain,
            trust(pki).wrap_socket(plain, server_hostname="127.0.0.1") as link,
        ):
            found = link.getpeercert()
            assert found is not None
            return found["subject"]

    with program(tmp_path) as process:
        port = port_of(process)
        assert shown(port) == ((("commonName", "first"),),)
        install(pki, "second", tmp_path)
        end = time.monotonic() + WITHIN_S
        while shown(port) != ((("commonName", "second"),),):
            assert time.monotonic() < end
            time.sleep(0.05)


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ("webhook.port=70000", "webhook.port: 70000 is not between 0 and 65535"),
        ("webhook.key_file=tls.key", "webhook.key_file: 'tls.key' is not an absolute path"),
        ("webhook.key_file=/nowhere/tls.key", "/nowhere/tls.key cannot be read"),
        ("webhook.adress=::", "webhook.adress: unknown key"),
        ("webhook.address=192.0.2.1", "Cannot assign requested address"),
        ("webhook.required_plugin=a b", "is no plugin's name"),
    ],
)
def test_settings_that_cannot_work_end_it_with_a_sentence(pki: Path, tmp_path: Path, setting: str, words: str) -> None:
    install(pki, "first", tmp_path)
    with program(tmp_path, setting) as process:
        _, said = process.communicate(timeout=WITHIN_S)

    assert process.returncode == 1
    assert words in said
    assert "Traceback" not in said


@pytest.mark.parametrize(("mode", "patched"), [("enforce", True), ("observe", False), ("off", False)])
def test_observe_and_off_change_nothing(pki: Path, tmp_path: Path, mode: str, patched: bool) -> None:
    install(pki, "first", tmp_path)
    with program(tmp_path, f"limits.mode={mode}") as process:
        port = port_of(process)
        link = http.client.HTTPSConnection("127.0.0.1", port, timeout=WITHIN_S, context=trust(pki))
        link.request("POST", PATH, GOOD, JSON_TYPE)
        answer = link.getresponse().read()
        link.request("POST", PATH, GOOD.replace(b'"1Mi"', b'"1.5"'), JSON_TYPE)
        bad = link.getresponse().read()
        link.close()

    assert (b"patchType" in answer) is patched
    assert (b'"allowed":true' in bad) is not patched
    assert (b"nodeward would refuse this pod: container 'app'" in bad) is (mode == "observe")
