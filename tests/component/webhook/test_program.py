"""`nodeward webhook` as a process: connections, signals, settings, memory; and deploy/webhook/make-certificate."""

import http.client
import os
import re
import resource
import shutil
import signal
import socket
import ssl
import stat
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from nodeward.features.admission.door.server import PATH
from tests.component.webhook import crowd
from tests.component.webhook.crowd import Client, Said
from tests.component.webhook.support import GOOD, JSON_TYPE, REQUEST, WITHIN_S, install, port_of, post, program
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


@pytest.mark.parametrize("mode", ["observe", "off"])
def test_observe_and_off_change_nothing(pki: Path, tmp_path: Path, mode: str) -> None:
    install(pki, "first", tmp_path)
    with program(tmp_path, f"limits.mode={mode}") as process:
        port = port_of(process)
        link = http.client.HTTPSConnection("127.0.0.1", port, timeout=WITHIN_S, context=trust(pki))
        link.request("POST", PATH, GOOD, JSON_TYPE)
        answer = link.getresponse().read()
        link.request("POST", PATH, GOOD.replace(b'"1Mi"', b'"1.5"'), JSON_TYPE)
        bad = link.getresponse().read()
        link.close()

    assert b"patchType" not in answer
    assert b'"allowed":true' in bad
    assert (b"nodeward would refuse this pod: container 'app'" in bad) is (mode == "observe")


CROWD = 2000
NEEDED = CROWD + 500
MOST_MIB = 160
"""With a buffer of 64 KiB for each connection it was 229, with asyncio's own 590."""


@pytest.fixture
def few_descriptors() -> Iterator[None]:
    """The server begins with as few as a container may have, and this process may have enough of them."""
    if DESCRIPTORS < NEEDED:
        absent(f"at most {DESCRIPTORS} descriptors: ulimit -n {NEEDED} for this test")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (1024, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def may_open_more() -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, NEEDED), hard))


def at_once(pid: int, clients: list[Client], message: bytes) -> list[Said]:
    """What comes of these requests, all of which are there when the server looks."""
    os.kill(pid, signal.SIGSTOP)
    try:
        return crowd.ask(clients, message, WITHIN_S, lambda: os.kill(pid, signal.SIGCONT))
    finally:
        os.kill(pid, signal.SIGCONT)


def peak_mib(pid: int) -> float:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM:")) / 1024


def ended(process: subprocess.Popen[str]) -> tuple[dict[str, int], str]:
    process.send_signal(signal.SIGTERM)
    assert process.wait(WITHIN_S) == 0
    assert process.stderr is not None
    logged = process.stderr.read()
    last = next(line for line in logged.splitlines() if " webhook ends " in line)
    return {name: int(count) for name, count in re.findall(r"(\w+)=(\d+)", last)}, logged


@pytest.mark.nightly
@pytest.mark.usefixtures("few_descriptors")
def test_a_crowd_of_two_thousand_is_answered_or_told_so_and_nobody_is_lost(pki: Path, tmp_path: Path) -> None:
    install(pki, "first", tmp_path)
    with program(tmp_path) as process:
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
        assert post(port, trust(pki)) == 200
        assert peak_mib(process.pid) < MOST_MIB
        counted, logged = ended(process)

    assert counted["overloaded"] == statuses[503]
    assert counted["patched"] == CROWD + statuses[200] + len(alone) + 1
    assert (counted["faults"], counted["turned_away"], counted["not_reviews"]) == (0, 0, 0)
    assert ("turned_away=503 times=1 because=too many reviews at once; add replicas" in logged) is (statuses[503] > 0)


ROOT = Path(__file__).resolve().parents[3]
SCRIPT = ROOT / "deploy" / "webhook" / "make-certificate"


def run(folder: Path, *words: str, **environ: str) -> subprocess.CompletedProcess[str]:
    bash = shutil.which("bash")
    assert bash is not None
    return subprocess.run(
        [bash, str(SCRIPT), *words],
        cwd=folder,
        env={**os.environ, **environ},
        capture_output=True,
        text=True,
        timeout=WITHIN_S,
        check=False,
    )


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
