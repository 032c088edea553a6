"""`nodeward webhook` as a process: connections, signals, settings, memory; and deploy/webhook/make-certificate."""

import http.client
import os
import re
import resource
import signal
import socket
import ssl
import stat
import subprocess
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from nodeward.features.admission.door.server import PATH
from tests.component.webhook import crowd
from tests.component.webhook.crowd import Client, Said
from tests.component.webhook.support import GOOD, JSON_TYPE, REQUEST, WITHIN_S, asked, install, port_of, program
from tests.patience import until
from tests.peers.find import absent


def trust(pki: Path) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=str(pki / "ca.crt"))


@contextmanager
def descriptors(more: int, first: int) -> Iterator[Callable[[], None]]:
    """A server that begins here has the first number; what is given gives this process so many more than it has."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = more + len(os.listdir("/proc/self/fd"))
    if hard < needed:
        absent(f"at most {hard} descriptors: ulimit -n {needed} for this test")
    resource.setrlimit(resource.RLIMIT_NOFILE, (first, hard))
    try:
        yield lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_ten_thousand_connections_that_say_nothing_do_not_lock_anybody_out(pki: Path, tmp_path: Path) -> None:
    install(pki, "first", tmp_path)
    with descriptors(10_500, 10_500) as may_open_more, program(tmp_path) as process, ExitStack() as held:
        port, context = port_of(process), trust(pki)
        may_open_more()
        known = http.client.HTTPSConnection("127.0.0.1", port, timeout=WITHIN_S, context=context)
        held.callback(known.close)
        known.request("POST", PATH, GOOD, JSON_TYPE)
        known.getresponse().read()
        for _ in range(10_000):
            held.enter_context(socket.create_connection(("127.0.0.1", port), timeout=WITHIN_S))
        known.request("POST", PATH, GOOD, JSON_TYPE)
        assert known.getresponse().status == 200
        assert asked(port, context)[0] == 200
        assert len(os.listdir(f"/proc/{process.pid}/fd")) < 2_100


def test_at_sigterm_what_has_begun_is_answered_and_nobody_new_comes_in(pki: Path, tmp_path: Path) -> None:
    install(pki, "first", tmp_path)
    with program(tmp_path, "webhook.request_s=60", "webhook.close_s=60") as process:  # a busy machine is no slow client
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
        until(lambda: refused(port), "nobody new comes in", 30.0)
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
    try:
        socket.create_connection(("127.0.0.1", port), WITHIN_S).close()
    except ConnectionRefusedError:
        return True
    except ConnectionResetError:
        pass  # it stood in the queue of the socket that is being closed
    return False


def test_a_new_certificate_is_used_without_a_restart(pki: Path, tmp_path: Path) -> None:
    first, second = ((pki / f"{name}.crt").read_text() for name in ("first", "second"))
    install(pki, "first", tmp_path)
    with program(tmp_path) as process:
        place = "127.0.0.1", port_of(process)
        assert ssl.get_server_certificate(place, timeout=WITHIN_S) == first
        install(pki, "second", tmp_path)
        until(lambda: ssl.get_server_certificate(place, timeout=WITHIN_S) == second, "the new certificate", 30.0)


def test_in_observe_it_answers_and_changes_nothing(pki: Path, tmp_path: Path) -> None:
    install(pki, "first", tmp_path)
    with program(tmp_path, "limits.mode=observe") as process:
        status, said = asked(port_of(process), trust(pki))
    assert (status, b"patchType" in said) == (200, False)


WRONG = {
    "webhook.port=70000": "webhook.port: 70000 is not between 0 and 65535",
    "webhook.key_file=/nowhere/tls.key": "/nowhere/tls.key cannot be read",
    "webhook.address=192.0.2.1": "Cannot assign requested address",
    "webhook.required_plugin=a b": "is no plugin's name",
}


def test_settings_that_cannot_work_end_it_with_a_sentence(pki: Path, tmp_path: Path) -> None:
    install(pki, "first", tmp_path)
    for setting, words in WRONG.items():
        with program(tmp_path, setting) as process:
            _, said = process.communicate(timeout=WITHIN_S)
        assert (process.returncode, words in said, "Traceback" in said) == (1, True, False), said


CROWD = 2000
MOST_MIB = 160
"""With a buffer of 64 KiB for each connection it was 229, with asyncio's own 590."""


def at_once(pid: int, clients: list[Client], message: bytes) -> list[Said]:
    """What comes of these requests, all of which are there when the server looks."""
    os.kill(pid, signal.SIGSTOP)
    try:
        return crowd.ask(clients, message, WITHIN_S, lambda: os.kill(pid, signal.SIGCONT))
    finally:
        os.kill(pid, signal.SIGCONT)


@pytest.mark.nightly
def test_a_crowd_of_two_thousand_is_answered_or_told_so_and_nobody_is_lost(pki: Path, tmp_path: Path) -> None:
    install(pki, "first", tmp_path)
    with descriptors(CROWD + 500, 1024) as may_open_more, program(tmp_path) as process:  # a container's
        port = port_of(process)
        may_open_more()
        with crowd.crowd(port, trust(pki), CROWD, WITHIN_S, first=REQUEST) as clients:
            said = [one for _ in range(3) for one in at_once(process.pid, clients, REQUEST)]
            statuses = Counter(one.status for one in said)
            assert len(said) == 3 * CROWD
            assert set(statuses) <= {200, 503}, statuses
            assert statuses[200] > 0
            assert not any(one.ends for one in said)
            alone = [crowd.ask([client], REQUEST, WITHIN_S)[0].status for client in clients[::100]]
            assert set(alone) == {200}
        assert asked(port, trust(pki))[0] == 200
        (peak,) = re.findall(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{process.pid}/status").read_text())
        assert int(peak) / 1024 < MOST_MIB
        process.send_signal(signal.SIGTERM)
        _, logged = process.communicate(timeout=WITHIN_S)

    assert process.returncode == 0
    (last,) = [line for line in logged.splitlines() if " webhook ends " in line]
    counted = {name: int(count) for name, count in re.findall(r"(\w+)=(\d+)", last)}
    assert counted["overloaded"] == statuses[503]
    assert counted["patched"] == CROWD + statuses[200] + len(alone) + 1
    assert (counted["faults"], counted["turned_away"], counted["not_reviews"]) == (0, 0, 0)
    assert ("turned_away=503 times=1 because=too many reviews at once; add replicas" in logged) is (statuses[503] > 0)


ROOT = Path(__file__).resolve().parents[3]
SCRIPT = ROOT / "deploy" / "webhook" / "make-certificate"


def run(folder: Path, *words: str, **environ: str) -> subprocess.CompletedProcess[str]:
    line, environment = ["/bin/bash", str(SCRIPT), *words], {**os.environ, **environ}
    return subprocess.run(line, cwd=folder, env=environment, capture_output=True, text=True, timeout=WITHIN_S)


def test_it_writes_a_secret_and_a_patch_that_nobody_else_may_read(tmp_path: Path) -> None:
    done = run(tmp_path, "new/certificate")

    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "new/certificate/secret.yaml new/certificate/trust.yaml\n"
    made = tmp_path / "new" / "certificate"
    assert sorted(one.name for one in made.iterdir()) == ["ca.crt", "secret.yaml", "trust.yaml"]
    assert stat.S_IMODE((made / "secret.yaml").stat().st_mode) == 0o600


def test_other_words_than_a_folder_and_a_namespace_are_told_the_usage_and_who_asks_for_help_gets_it(
    tmp_path: Path,
) -> None:
    for words in ((), ("",), ("a", "B c"), ("a", "b", "c"), ("--folder",)):
        done = run(tmp_path, *words)
        assert (done.returncode, done.stdout) == (2, "")
        assert done.stderr.startswith("usage: make-certificate FOLDER [NAMESPACE]\n")
        assert "deploy/webhook/make-certificate certificate\n" in done.stderr
    for word in ("-h", "--help"):
        done = run(tmp_path, word)
        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout.startswith("usage: make-certificate FOLDER [NAMESPACE]\n")
    assert list(tmp_path.iterdir()) == []


def test_where_openssl_is_missing_or_fails_it_says_so_and_how_to_mend_it(tmp_path: Path) -> None:
    done = run(tmp_path, "certificate", PATH=str(tmp_path))
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == (
        "make-certificate: openssl is not on PATH; install it, on Debian by 'apt-get install openssl', and run this "
        "again\n"
    )
    assert list(tmp_path.iterdir()) == []
    broken = tmp_path / "openssl.cnf"
    broken.write_text("[")
    done = run(tmp_path, "certificate", OPENSSL_CONF=str(broken))

    assert (done.returncode, done.stdout) == (1, "")
    first, *rest = done.stderr.splitlines()
    assert first == "make-certificate: 'openssl req' failed; nothing was written. It said:"
    assert any(str(broken) in line for line in rest), done.stderr
    assert list((tmp_path / "certificate").iterdir()) == []
