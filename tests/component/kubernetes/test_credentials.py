"""Tokens and certificates that rotate while requests go on, over real sockets and real TLS; and Events."""

import asyncio
import os
import shutil
import ssl
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from nodeward.core.decision import PodEvent
from nodeward.core.events import CallEnded
from nodeward.core.refusal import Reason
from nodeward.features.notices.wiring import MOST_WAITING, Calls
from nodeward.host.backoff import Backoff
from nodeward.neighbours.kubernetes import events
from nodeward.neighbours.kubernetes.client import PodsClient
from nodeward.neighbours.sockets.kube_http import (
    Endpoint,
    KubeCredentialsError,
    KubeHttp,
    KubeRefusedError,
    KubeTooLargeError,
    KubeUnreachableError,
    Waits,
)
from nodeward_sim.doubles.apiserver import ApiServer
from tests.component.kubernetes.support import WITHIN_S, Ears, HandClock, make_ca, make_leaf, pod, settings_for, until
from tests.rigs.stories import told_in, under_way

WAITS = Waits(connect_s=2.0, read_s=2.0, total_s=4.0)


@pytest.fixture(scope="module")
def pki(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two authorities, one and two, each with a server and a client."""
    folder = tmp_path_factory.mktemp("pki")
    for ca in ("one", "two"):
        make_ca(folder, ca)
        make_leaf(folder, f"server-{ca}", ca)
        make_leaf(folder, f"client-{ca}", ca)
    return folder


def server_tls(pki: Path, ca: str, clients: str = "") -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(pki / f"server-{ca}.crt", pki / f"server-{ca}.key")
    if clients:
        context.load_verify_locations(pki / f"{clients}.crt")
        context.verify_mode = ssl.CERT_REQUIRED
    return context


def install(source: Path, target: Path) -> None:
    new = target.with_suffix(".new")
    shutil.copy(source, new)
    os.replace(new, target)


def http_to(endpoint: Endpoint, clock: HandClock) -> KubeHttp:
    return KubeHttp(endpoint, clock, check_files_s=10.0, user_agent="test")


async def list_pods(http: KubeHttp) -> bytes:
    return await http.get("/api/v1/pods", {}, waits=WAITS, max_bytes=1 << 20)


async def test_a_new_token_is_used_once_the_files_are_looked_at_again(tmp_path: Path) -> None:
    token, clock = tmp_path / "token", HandClock()
    token.write_text("first\n")
    async with (
        ApiServer(("first", "second")) as server,
        http_to(Endpoint(server.url, token_file=str(token)), clock) as http,
    ):
        await list_pods(http)
        (tmp_path / "next").write_text("second\n")
        install(tmp_path / "next", token)
        await list_pods(http)
        assert http.identity.reloads == 1, "looked again before its time"
        clock.ns += 10_000_000_000
        await list_pods(http)
        assert http.identity.reloads == 2
        server.tokens = {"second"}
        await list_pods(http)
        clock.ns += 10_000_000_000
        await list_pods(http)
        assert http.identity.reloads == 2, "read files that did not change"


async def test_a_token_file_that_vanishes_leaves_the_old_token_in_use(tmp_path: Path) -> None:
    token, clock = tmp_path / "token", HandClock()
    token.write_text("first")
    async with ApiServer(("first",)) as server, http_to(Endpoint(server.url, token_file=str(token)), clock) as http:
        await list_pods(http)
        token.unlink()
        clock.ns += 10_000_000_000
        await list_pods(http)


async def test_a_server_certificate_of_a_new_authority_is_trusted_when_the_ca_file_is_new(
    pki: Path, tmp_path: Path
) -> None:
    ca, clock = tmp_path / "ca.crt", HandClock()
    install(pki / "one.crt", ca)
    server = await ApiServer().start(tls=server_tls(pki, "one"))
    port = server.port
    async with server, http_to(Endpoint(server.url, ca_file=str(ca)), clock) as http:
        await list_pods(http)
        await server.stop()
        await server.start(port=port, tls=server_tls(pki, "two"))
        with pytest.raises(KubeUnreachableError, match="certificate"):
            await list_pods(http)
        install(pki / "two.crt", ca)
        clock.ns += 10_000_000_000
        await list_pods(http)


async def test_a_client_certificate_rotates_and_half_a_rotation_changes_nothing(pki: Path, tmp_path: Path) -> None:
    certificate, key, clock = tmp_path / "client.crt", tmp_path / "client.key", HandClock()
    install(pki / "client-one.crt", certificate)
    install(pki / "client-one.key", key)
    server = await ApiServer().start(tls=server_tls(pki, "one", clients="one"))
    port = server.port
    endpoint = Endpoint(
        server.url, ca_file=str(pki / "one.crt"), client_certificate_file=str(certificate), client_key_file=str(key)
    )
    async with server, http_to(endpoint, clock) as http:
        await list_pods(http)
        install(pki / "client-two.crt", certificate)
        clock.ns += 10_000_000_000
        await list_pods(http)
        assert http.identity.reloads == 1
        install(pki / "client-two.key", key)
        clock.ns += 10_000_000_000
        await server.stop()
        await server.start(port=port, tls=server_tls(pki, "one", clients="two"))
        await list_pods(http)
        assert http.identity.reloads == 2


async def test_certificates_given_as_text_need_no_file(pki: Path) -> None:
    server = await ApiServer().start(tls=server_tls(pki, "one", clients="two"))
    endpoint = Endpoint(
        server.url,
        ca_pem=(pki / "one.crt").read_text(),
        client_certificate_pem=(pki / "client-two.crt").read_text(),
        client_key_pem=(pki / "client-two.key").read_text(),
    )
    async with server, http_to(endpoint, HandClock()) as http:
        await list_pods(http)


NOBODY = "https://127.0.0.1:1"


@pytest.mark.parametrize(
    ("endpoint", "says"),
    [
        pytest.param(
            Endpoint(NOBODY, token_file="/nonexistent/t"), "/nonexistent/t cannot be read", id="no token file"
        ),
        pytest.param(Endpoint(NOBODY, token_file="/dev/null"), "holds no token", id="empty token file"),
        pytest.param(Endpoint(NOBODY, ca_file="/nonexistent/ca"), "CA file /nonexistent/ca", id="no CA file"),
        pytest.param(Endpoint(NOBODY, ca_pem="rubbish"), "no certificate", id="CA is no certificate"),
        pytest.param(Endpoint(NOBODY, client_certificate_pem="x"), "belong together", id="certificate without key"),
        pytest.param(
            Endpoint(NOBODY, client_certificate_pem="x", client_key_pem="s3cret"), "do not form a pair", id="bad pair"
        ),
    ],
)
async def test_credentials_that_cannot_be_used_say_what_and_where(endpoint: Endpoint, says: str) -> None:
    async with http_to(endpoint, HandClock()) as http:
        with pytest.raises(KubeCredentialsError) as caught:
            await list_pods(http)
    assert says in str(caught.value)
    assert "s3cret" not in str(caught.value)


async def test_a_body_over_its_bound_is_not_read_to_its_end() -> None:
    async with ApiServer() as server, http_to(Endpoint(server.url), HandClock()) as http:
        for number in range(20):
            server.add_pod(pod(f"p{number}"))
        with pytest.raises(KubeTooLargeError, match="more than 100 bytes"):
            await http.get("/api/v1/pods", {}, waits=WAITS, max_bytes=100)


async def test_a_refusal_carries_status_and_reason_and_no_token() -> None:
    async with ApiServer(("good",)) as server, http_to(Endpoint(server.url, token="s3cret"), HandClock()) as http:
        with pytest.raises(KubeRefusedError) as caught:
            await list_pods(http)
    assert (caught.value.status, caught.value.reason) == (401, "Unauthorized")
    assert "s3cret" not in str(caught.value)
    assert "s3cret" not in repr(http.endpoint)


REFUSED = Reason("charge-refused", ("sgx_epc", "sgx.intel.com/epc", 4096, 4096, "the pod's spec in the API server"))
FIRST = PodEvent(1, 1, "shop", "web", "u-web", "app", "spec.containers{app}", REFUSED, 1, 10**9, 10**9)
LOST = PodEvent(1, 1, "default", "", "", "", "", Reason("journal-lost", ("journal",)), 1, 10**9, 10**9)
"""On the node itself."""


@dataclass
class Sent:
    server: ApiServer
    calls: Calls
    ears: Ears
    clock: HandClock

    async def send(self, *calls: PodEvent) -> list[str]:
        before = len(self.ears.all(CallEnded))
        self.calls(calls)
        await self.ears.wait(CallEnded, before + len(calls))
        return [ended.error for ended in self.ears.all(CallEnded)[before:]]


@asynccontextmanager
async def sending() -> AsyncIterator[Sent]:
    async with asyncio.timeout(3 * WITHIN_S), ApiServer() as server:
        clock, ears = HandClock(), Ears()
        calls, pauses = Calls(ears, clock), Backoff(0.5, 60.0, lambda: 1.0)
        client = PodsClient(settings_for(server), clock)
        async with aclosing(client), under_way(calls.run(events.EventSender(client), pauses)):
            yield Sent(server, calls, ears, clock)


@told_in(sending)
async def test_an_event_is_made_and_counted_up(sent: Sent) -> None:
    assert await sent.send(FIRST, replace(FIRST, id=2, count=5, last_ns=2 * 10**9)) == ["", ""]
    ((key, made),) = sent.server.events.items()
    assert key[0] == "shop"
    assert made["series"] == {"count": 5, "lastObservedTime": "1970-01-01T00:00:02.000000Z"}
    assert made["reportingInstance"] == "nodeward-n1"
    assert sent.calls.outcomes == {"sent": 2, "failed": 0, "dropped": 0}


@told_in(sending)
async def test_an_event_on_the_node_that_is_refused_is_named_in_the_log(
    sent: Sent, caplog: pytest.LogCaptureFixture
) -> None:
    sent.server.faults.refuse.append(403)
    assert ["403" in error for error in await sent.send(LOST)] == [True]
    assert "kube event=failed node=n1 why=" in caplog.text


@pytest.mark.parametrize("status", [403, 404, 409, 429, 503])
@told_in(sending)
async def test_a_refused_event_is_not_sent_again_and_the_next_one_waits(
    sent: Sent, status: int, caplog: pytest.LogCaptureFixture
) -> None:
    sent.server.faults.refuse.extend([status, status])
    ended = await sent.send(FIRST, replace(FIRST, id=2, series=2), replace(FIRST, id=3, series=3))
    assert [str(status) in error for error in ended] == [True, True, False]
    assert len(sent.server.requests) == 3
    assert sent.calls.outcomes == {"sent": 1, "failed": 2, "dropped": 0}
    assert sent.clock.slept == [0.5, 1.0]
    lines = [line for line in caplog.messages if "event=failed" in line]
    assert len(lines) == 1
    assert status != 403 or "allow create and patch on events of events.k8s.io" in lines[0]


@told_in(sending)
async def test_an_api_server_that_hangs_holds_up_a_bounded_number_and_the_rest_is_dropped(
    sent: Sent, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(events, "WAITS", Waits(connect_s=0.2, read_s=0.2, total_s=0.2))
    sent.server.faults.hang = True
    sent.calls((FIRST,))
    await until(lambda: len(sent.server.requests) == 1)
    more = tuple(replace(FIRST, id=n, series=n) for n in range(2, MOST_WAITING + 12))
    sent.calls(more)
    assert sent.calls.waiting == MOST_WAITING
    await sent.ears.wait(CallEnded, 11)
    assert sent.calls.outcomes["dropped"] == 10
    assert "no answer in time" in sent.ears.all(CallEnded)[-1].error


@told_in(sending)
async def test_a_pod_whose_name_leads_elsewhere_is_not_asked_about(sent: Sent) -> None:
    (error,) = await sent.send(replace(FIRST, namespace="../../../api/v1/namespaces/x/secrets"))
    assert "is no name of Kubernetes" in error
    assert sent.server.requests == []
