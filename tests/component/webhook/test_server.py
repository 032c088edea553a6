"""The webhook over real TLS: good reviews, bad input of every kind, overload, certificates that change;
answers on the wire, and reviews in which anything is missing, null or of another kind."""

import asyncio
import base64
import json
import logging
import socket
import ssl
from collections.abc import Iterator
from contextlib import suppress
from email.utils import parsedate_to_datetime
from pathlib import Path

import pytest
from aiohttp.base_protocol import BaseProtocol
from aiohttp.http import HttpRequestParser, RawRequestMessage

from nodeward.core.modes import Mode
from nodeward.features.admission.door.doors import Patience, listen
from nodeward.features.admission.door.server import PATH, Bounds, WebhookServer
from nodeward.features.admission.values import Operation, PodAsked, Verdict
from nodeward.features.limits.settings import LimitsSettings
from nodeward.features.settings import Settings
from nodeward.host.tls import ReloadingTls, TlsFilesError
from nodeward.programs.webhook import decider
from tests.component.kubernetes.support import openssl, until
from tests.component.webhook.support import EPC, GOOD, HEAD, JSON_TYPE, REQUEST, Serving, answer, install, served, swap
from tests.patience import scaled
from tests.unit.features.admission.rounds import Json, applied, at, container, notes, pod_of, review


def patched(made: Json, response: Json) -> Json:
    assert response["allowed"] is True
    assert response["patchType"] == "JSONPatch"
    return applied(made, json.loads(base64.b64decode(str(response["patch"]))))


async def test_who_comes_in_the_moment_the_server_stops_is_no_fault(caplog: pytest.LogCaptureFixture) -> None:
    """Given a server that waits, when somebody connects and it is cancelled before it has looked."""
    loop = asyncio.get_running_loop()
    server, listener = WebhookServer(decider(Settings()), lambda: None), listen("127.0.0.1", 0)
    accepting = loop.create_task(server.doors.accept(listener))
    await asyncio.sleep(0)
    with socket.create_connection(listener.getsockname()), listener:
        loop.call_soon(accepting.cancel)
        await asyncio.gather(accepting, return_exceptions=True)
        await asyncio.sleep(0)
        listener.accept()[0].close()  # still at the door, for whoever serves next on this socket
    assert caplog.text == ""


@served()
async def test_a_pod_is_changed_and_a_bad_one_refused(here: Serving) -> None:
    made = pod_of(container("app", {EPC: "1Mi"}))
    found = patched(made, await here.review(made))
    assert at(found, "spec", "containers", 0, "resources", "limits") == {EPC: "1Mi", "sgx.intel.com/enclave": "1"}
    assert notes(found)["nodeward.io/limits"] == '{"app":{"sgx_epc":"1048576"}}'

    refused = await here.review(pod_of(container("app", {EPC: "1500m"}), container("side", {EPC: "x"})))
    assert refused["allowed"] is False
    said = str(at(refused, "status", "message")).splitlines()  # a fault a line
    assert [line.partition(": ")[0] for line in said] == [
        "container 'app' (spec.containers[0])",
        "container 'side' (spec.containers[1])",
    ]
    assert (here.server.counts.patched, here.server.counts.refused) == (1, 1)


def body_of(**changed: object) -> bytes:
    """A good review but for these members of its request."""
    made = review(pod_of(container("app")))
    request = made["request"]
    assert isinstance(request, dict)
    return json.dumps({**made, "request": request | changed}).encode()


NAMED: dict[str, tuple[Json, Json, str]] = {
    "as the API server says": ({"name": "web"}, {"name": "other"}, "default/web"),
    "by its metadata": ({}, {"name": "web"}, "default/web"),
    "a Deployment's": ({}, {"generateName": "web-7f9-"}, "default/web-7f9-..."),
    "a Deployment's, with nulls": ({"name": None}, {"name": None, "generateName": "web-7f9-"}, "default/web-7f9-..."),
    "not at all": ({"name": ""}, {}, "default/(no name)"),
    "in two lines": ({}, {"generateName": "a\nrefused=b"}, "default/a\\u000arefused=b..."),
    "without end": ({}, {"name": "a" * 9999}, f"default/{'a' * 253}..."),
}


def head() -> RawRequestMessage:
    """A good review's, as the loop's parser reads it."""
    loop = asyncio.get_running_loop()
    return HttpRequestParser(BaseProtocol(loop), loop, 1 << 16).feed_data(REQUEST)[0][0][0]


@pytest.mark.parametrize("mode", [Mode.ENFORCE, Mode.OBSERVE], ids=lambda mode: mode.value)
@pytest.mark.parametrize(("request_", "metadata", "shown"), NAMED.values(), ids=NAMED)
async def test_the_log_says_which_pod_was_refused(
    caplog: pytest.LogCaptureFixture, mode: Mode, request_: Json, metadata: Json, shown: str
) -> None:
    """A controller's pod has no name yet, and names come unchecked."""
    caplog.set_level(logging.INFO)
    bad = {**pod_of(container("app", {EPC: "1500m"})), "metadata": metadata}
    server = WebhookServer(decider(Settings(limits=LimitsSettings(mode=mode))), lambda: None)
    assert server.whole(head(), body_of(object=bad, **request_)).status == 200
    (line,) = [one.getMessage() for one in caplog.records if "1500m" in one.getMessage()]
    assert line.startswith(f"{'refused' if mode is Mode.ENFORCE else 'observed'}={shown} ")


@pytest.mark.parametrize("mode", [Mode.OBSERVE, Mode.OFF], ids=lambda mode: mode.value)
async def test_observe_and_off_change_nothing(mode: Mode) -> None:
    server = WebhookServer(decider(Settings(limits=LimitsSettings(mode=mode))), lambda: None)
    assert b"patchType" not in server.whole(head(), GOOD).body
    bad = server.whole(head(), GOOD.replace(b'"1Mi"', b'"1.5"')).body
    assert b'"allowed":true' in bad
    assert (b"nodeward would refuse this pod: container 'app'" in bad) is (mode is Mode.OBSERVE)


NO_OBJECT, NO_SPEC = b" of a pod has no request.object: ", b" of a pod has no request.object.spec: "
DEEP = b'"options": ' + b"[" * 1_000_000 + b"]" * 1_000_000
OF_NO_POD = body_of(operation="UPDATE", subResource="ephemeralcontainers", object=None)
BAD: dict[str, tuple[bytes, int, bytes]] = {
    "not JSON": (b"hello", 400, b"admission review"),
    "empty": (b"", 400, b"admission review"),
    "no content type": (GOOD, 415, b"not application/json"),
    "another content type": (GOOD, 415, b"not application/json"),
    "compressed": (GOOD, 415, b"compressed"),
    "an unknown version": (GOOD.replace(b"k8s.io/v1", b"k8s.io/v2"), 400, b"admissionReviewVersions"),
    "no request": (b'{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview"}', 400, b"no request"),
    "a create without a pod": (body_of(object="gone").replace(b'"object": "gone", ', b""), 400, b"CREATE" + NO_OBJECT),
    "a create of null": (body_of(object=None), 400, b"CREATE" + NO_OBJECT),
    "a create of a pod without spec": (body_of(object={"metadata": {"name": "web"}}), 400, b"CREATE" + NO_SPEC),
    "an update to a null spec": (body_of(operation="UPDATE", object={"spec": None}), 400, b"UPDATE" + NO_SPEC),
    "an ephemeral container of no pod": (OF_NO_POD, 400, b"UPDATE" + NO_OBJECT),
    "deep nesting": (GOOD.replace(b'"options": {}', DEEP), 400, b"nested"),
    "too large": (GOOD + b" " * (8 << 20), 413, b"at most 8388608"),
}
HEADERS: dict[str, dict[str, str]] = {
    "no content type": {},
    "another content type": {"Content-Type": "text/plain"},
    "compressed": {**JSON_TYPE, "Content-Encoding": "gzip"},
}


@pytest.mark.parametrize("what", BAD)
@served()
async def test_what_is_no_review_gets_a_status_with_a_text_and_the_server_goes_on(
    here: Serving, caplog: pytest.LogCaptureFixture, what: str
) -> None:
    body, status, words = BAD[what]
    got, said = await here.post(body, HEADERS.get(what, JSON_TYPE))
    assert (got, words in said) == (status, True), said
    (line,) = [one.getMessage() for one in caplog.records if "turned_away=" in one.getMessage()]
    assert line.startswith(f"turned_away={status} times=1 because=")
    assert words.decode() in line
    assert line.endswith(said.decode().removeprefix("nodeward webhook: ").rstrip())
    assert (await here.post(GOOD))[0] == 200


PASSED: dict[str, bytes] = {
    "a deletion, which has no object": body_of(operation="DELETE", object=None),
    "a command in a pod": body_of(operation="CONNECT", subResource="exec", object={"kind": "PodExecOptions"}),
    "a binding": body_of(subResource="binding", object={"target": {"name": "one"}}),
    "a pod without containers, which the API server refuses itself": body_of(object={"spec": {"containers": None}}),
}


@served()
async def test_what_has_no_spec_by_its_nature_or_an_empty_one_passes_and_the_probes_answer(here: Serving) -> None:
    for body in PASSED.values():
        status, said = await here.post(body)
        assert (status, at(json.loads(said), "response", "allowed")) == (200, True), said
    reader, writer = await here.open()
    for path, status in (("/healthz", 200), ("/readyz", 200), (PATH, 405)):
        writer.write(f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
        assert (await answer(reader))[0] == status
    assert (await here.post(GOOD, path="/validate"))[0] == 404
    writer.close()


@served(bounds=Bounds(max_body_bytes=1 << 20))
async def test_a_body_without_a_length_is_bounded_too(here: Serving) -> None:
    reader, writer = await here.open()
    head = f"POST {PATH} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
    writer.write(head.encode())
    for _ in range(40):
        writer.write(b"10000\r\n" + b" " * 0x10000 + b"\r\n")
    assert (await reader.readline()).startswith(b"HTTP/1.1 413 ")
    writer.close()


@served()
async def test_reviews_of_three_mebibytes_and_full_annotations(here: Serving) -> None:
    heavy = pod_of(container("app", {EPC: "1"}, args=["x" * (3 << 20)]))
    assert at(patched(heavy, await here.review(heavy)), "metadata", "annotations", EPC) == "1"

    noted = pod_of(container("app", {EPC: "1"}), annotations={f"note-{n}": "y" * 1024 for n in range(250)})
    assert len(notes(patched(noted, await here.review(noted)))) == 253


@served(bounds=Bounds(max_body_bytes=10_000, max_held_bytes=18_100))
async def test_overload_is_answered_at_once_and_passes(here: Serving, caplog: pytest.LogCaptureFixture) -> None:
    open_: list[asyncio.StreamWriter] = []
    for _ in range(2):
        _, writer = await here.open()
        writer.write(f"{HEAD}Content-Length: 9000\r\n\r\n".encode())
        open_.append(writer)
    await until(lambda: here.server.arriving == 2)
    reader, third = await here.open()
    third.write(f"{HEAD}Content-Length: 9000\r\n\r\n".encode())
    assert (await reader.readline()).startswith(b"HTTP/1.1 503 ")
    await reader.readuntil(b"add replicas\n")
    third.close()
    for writer in open_:
        writer.close()
    await until(lambda: here.server.arriving == 0)
    assert (await here.post(GOOD))[0] == 200
    assert here.server.counts.overloaded >= 1
    lines = [one.getMessage() for one in caplog.records if one.name.endswith("door.refusal_log")]
    assert lines == ["turned_away=503 times=1 because=too many reviews under way; add replicas"]


async def test_reviews_that_are_all_there_are_shed_when_a_turn_has_been_too_long_and_only_then() -> None:
    """Given reviews that take 0.5 s each by the clock, when four came whole at once, then two are answered."""
    clock = [100.0]

    def slow(what: Operation, asked: PodAsked) -> Verdict:
        clock[0] += 0.5
        return decider(Settings())(what, asked)

    server = WebhookServer(slow, lambda: None, now=lambda: clock[0])
    at_once = [server.whole(head(), GOOD) for _ in range(3)] + [server.rest(head(), GOOD, len(GOOD))]
    assert [(one.status, one.ends) for one in at_once] == [(200, False)] * 2 + [(503, False)] * 2
    assert server.counts.overloaded == 2
    await asyncio.sleep(0)
    assert server.whole(head(), GOOD).status == 200
    await asyncio.sleep(0)
    clock[0] += 3600.0  # nobody asked for long: that is no turn
    assert server.whole(head(), GOOD).status == 200


@served()
async def test_new_certificates_are_used_and_garbage_is_not(
    here: Serving, pki: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)

    async def shown(here: Serving) -> object:
        _, writer = await here.open()
        found: dict[str, object] = writer.get_extra_info("peercert")
        writer.close()
        return found["subject"]

    assert await shown(here) == ((("commonName", "first"),),)
    old, writer = await here.open()
    install(pki, "second", tmp_path)
    await here.tls.check()
    assert await shown(here) == ((("commonName", "second"),),)

    garbage = tmp_path / "..garbage"
    garbage.mkdir()
    for content in (b"garbage", b"", (pki / "first.crt").read_bytes()):
        (garbage / "tls.crt").write_bytes(content)
        (garbage / "tls.key").write_bytes((pki / "second.key").read_bytes())
        swap(tmp_path, garbage)
        await here.tls.check()
        await here.tls.check()
        assert await shown(here) == ((("commonName", "second"),),)
        assert "no pair that can be used" in here.tls.fault
    (tmp_path / "..data").unlink()
    await here.tls.check()
    assert "cannot be read: No such file" in here.tls.fault
    assert await shown(here) == ((("commonName", "second"),),)
    swap(tmp_path, tmp_path / "..first")
    await here.tls.check()
    assert (here.tls.fault, await shown(here)) == ("", ((("commonName", "first"),),))

    writer.write(REQUEST)
    assert b"200" in await old.readuntil(b"\r\n")
    writer.close()

    kept = [record for record in caplog.records if "certificate=kept" in record.getMessage()]
    assert len(kept) == 4  # once for each kind of garbage, not for each look
    assert {record.levelname for record in kept} == {"WARNING"}


@pytest.mark.parametrize("kind", ["absent", "garbage", "encrypted", "huge"])
def test_a_start_without_a_usable_pair_is_an_error_that_names_the_files(pki: Path, tmp_path: Path, kind: str) -> None:
    certificate, key = tmp_path / "tls.crt", tmp_path / "tls.key"
    if kind != "absent":
        certificate.write_bytes((pki / "first.crt").read_bytes())
        key.write_bytes(b"-----" if kind == "garbage" else b" " * (1 << 21))
    if kind == "encrypted":  # nobody is asked for the password
        openssl("ec", "-in", str(pki / "first.key"), "-aes128", "-passout", "pass:secret", "-out", str(key))
    with pytest.raises(TlsFilesError, match=str(tmp_path)):
        asyncio.run(ReloadingTls(str(certificate), str(key)).check())


@served()
async def test_nothing_of_a_pod_but_its_faults_is_logged(here: Serving, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    secret = [{"name": "TOKEN", "value": "hunter2"}]
    await here.review(pod_of(container("app", {EPC: "1"}, env=secret)))
    await here.review(pod_of(container("app", {EPC: "1.5"}, env=secret)))
    await here.post(json.dumps(review(pod_of(container("app", env=secret)))).encode()[:-9])
    assert "hunter2" not in caplog.text
    assert "refused=default/web because=container 'app'" in caplog.text


CLOSING = {
    "by a header": REQUEST.replace(b"Host: x\r\n", b"Host: x\r\nConnection: close\r\n"),
    "HTTP/1.0": REQUEST.replace(b" HTTP/1.1\r\n", b" HTTP/1.0\r\n"),
}


@served()
async def test_an_answer_has_the_head_that_http_asks_for_and_who_asks_for_one_gets_one_and_the_end(
    here: Serving,
) -> None:
    for request, ends in ((REQUEST + REQUEST, False), *((one, True) for one in CLOSING.values())):
        reader, writer = await here.open()
        writer.write(request)  # the second before the first is answered
        for _ in range(1 if ends else 2):
            status, headers, body = await answer(reader)
            assert (status, headers["content-type"]) == (200, "application/json")
            assert parsedate_to_datetime(headers["date"]).tzinfo is not None
            assert json.loads(body)["response"]["patchType"] == "JSONPatch"
        if ends:
            assert await reader.read() == b""
        writer.close()


def _deaf(here: Serving, bye: bool) -> ssl.SSLSocket:
    """A client that asks for more than a megabyte, takes nothing, and perhaps says that it is at its end."""
    body = json.dumps(review(pod_of(*(container(f"c{number}", {EPC: "1Mi"}) for number in range(60))))).encode()
    plain = socket.socket()
    plain.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    plain.connect(("127.0.0.1", here.port))
    link = here.trust.wrap_socket(plain, server_hostname="127.0.0.1")
    link.settimeout(0.2)
    with suppress(OSError):
        for _ in range(150):
            link.sendall(f"{HEAD}Content-Length: {len(body)}\r\n\r\n".encode() + body)
        if bye:
            link.unwrap()
    return link


@pytest.mark.parametrize("bye", [False, True], ids=["silent", "at its end"])
@served(patience=Patience(request_s=scaled(1.0)))
async def test_who_has_asked_and_takes_no_answers_is_closed_in_time(here: Serving, bye: bool) -> None:
    deaf = await asyncio.to_thread(_deaf, here, bye)
    try:
        async with asyncio.timeout(scaled(30.0)):
            await until(lambda: not len(here.server.doors))
    finally:
        deaf.close()
    assert bye or here.server.doors.counts.slow == 1  # the end of TLS has a time of its own, which may be up before


@served(bounds=Bounds(max_held_bytes=15_000), patience=Patience(request_s=scaled(60.0)))
async def test_while_many_answers_wait_for_their_clients_others_are_told_so(here: Serving) -> None:
    deaf = await asyncio.to_thread(_deaf, here, False)
    await until(lambda: bool(here.server._unsent))
    status, said = await here.post(GOOD)
    assert (status, said) == (503, b"nodeward webhook: too many answers that nobody takes\n")
    deaf.close()
    await until(lambda: not len(here.server.doors))
    assert (await here.post(GOOD))[0] == 200


@served(bounds=Bounds(max_answer_bytes=2000))
async def test_a_pod_of_so_many_containers_that_its_changes_cannot_be_answered_is_refused(here: Serving) -> None:
    many = await here.review(pod_of(*(container(f"c{number}", {EPC: "1Mi"}) for number in range(20))))
    assert many["allowed"] is False
    assert "its 20 containers need changes of" in json.dumps(many)
    few = await here.review(pod_of(container("app", {EPC: "1Mi"})))
    assert few["allowed"] is True
    assert (here.server.counts.refused, here.server.counts.allowed) == (1, 1)


GONE = object()
OTHERS: dict[str, object] = {"gone": GONE, "null": None, "text": "x", "number": 7, "list": [[]], "map": {"": {}}}


def changed(tree: object) -> Iterator[tuple[str, object]]:
    """The tree with one thing in it gone, null, or of each other type; and which."""
    for path in _paths(tree):
        for kind, other in OTHERS.items():
            yield f"{'.'.join(map(str, path))} {kind}", _with(tree, path, other)


def _with(tree: object, path: tuple[str | int, ...], other: object) -> object:
    if not path:
        return other
    if isinstance(tree, dict):
        found = {key: _with(value, path[1:], other) if key == path[0] else value for key, value in tree.items()}
        return {key: value for key, value in found.items() if value is not GONE}
    assert isinstance(tree, list)
    items = [_with(value, path[1:], other) if place == path[0] else value for place, value in enumerate(tree)]
    return [value for value in items if value is not GONE]


def _paths(tree: object) -> Iterator[tuple[str | int, ...]]:
    below = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ()
    for key, value in below:
        yield (key,)
        yield from ((key, *rest) for rest in _paths(value))


@served()
async def test_a_review_in_which_something_is_missing_or_another_type_gets_an_answer_and_is_no_fault_of_ours(
    here: Serving,
) -> None:
    made: Json = review(
        pod_of(
            container("app", {EPC: "1Mi"}, env=[{"name": "A"}], volumeMounts=[{"name": "v", "mountPath": "/v"}]),
            annotations={"sgx.intel.com/quote-provider": "aesmd", "nodeward.io/limits": "{}"},
            volumes=[{"name": "v"}],
        )
    )
    reader, writer = await here.open()
    for what, tree in changed(made):
        body = json.dumps(tree).encode()
        writer.write(f"{HEAD}Content-Length: {len(body)}\r\n\r\n".encode() + body)
        status, _, said = await answer(reader)
        assert status in (200, 400), what
        if status == 200:
            assert isinstance(json.loads(said)["response"]["allowed"], bool), what
    writer.close()
    assert here.server.counts.faults == 0
    assert here.server.counts.not_reviews > 100
    assert here.server.counts.allowed > 50
    assert here.server.counts.refused > 5


FULL = "y" * (256 * 1024)


@served()
async def test_an_annotation_of_256_kib_is_replaced_or_left_and_never_repeated(here: Serving) -> None:
    for key in ("nodeward.io/limits", "sgx.intel.com/quote-provider", "somebody.else/note"):
        body = json.dumps(review(pod_of(container("app", {EPC: "1Mi"}), annotations={key: FULL}))).encode()
        status, said = await here.post(body, JSON_TYPE)
        response = json.loads(said)["response"]
        assert (status, response["allowed"], len(said) < 4096) == (200, True, True)
        assert FULL[:200].encode() not in base64.b64decode(response["patch"])
