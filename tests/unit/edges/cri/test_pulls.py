"""Whose pull is it: what a watcher of CRI keeps of pulls and sandboxes, and what it never keeps."""

import logging
from collections.abc import Sequence
from itertools import count

import pytest

from nodeward.edges.cri.pulls import MOST_PULLS, PullBook
from nodeward.model.pulls import PullRow
from nodeward.model.relayed import Call, Ended, Interest, Message
from nodeward.proto import cri_pb2 as cri

CANARY = "c4n4ry"


class Told:
    """A book, and calls that pass it."""

    def __init__(self) -> None:
        self.now = 100
        self.book = PullBook(lambda: self.now, lambda: self.now, lambda do, _: do())
        self.numbers = count(1)

    def begin(self, name: str, *requests: bytes, service: str = "RuntimeService", version: str = "v1") -> Call | None:
        """The call, where somebody wants to see it."""
        call = Call(next(self.numbers), 1, f"/runtime.{version}.{service}/{name}", self.now)
        if self.book.interest(call.path) is Interest.NONE:
            return None
        self.book.began(call)
        for one in requests:
            self.book.request(call, message(one))
        return call

    def end(self, call: Call | None, *answers: bytes, status: int | None = 0) -> None:
        if call is not None:
            for one in answers:
                self.book.response(call, message(one))
            self.book.ended(call, Ended(status, CANARY, self.now))

    def run(self, attempt: int, sandbox: str) -> None:
        asked = cri.RunPodSandboxRequest(config=config(attempt), runtime_handler="kata")
        made = cri.RunPodSandboxResponse(pod_sandbox_id=sandbox).SerializeToString()
        self.end(self.begin("RunPodSandbox", asked.SerializeToString()), made)


def message(payload: bytes) -> Message:
    return Message((payload,), len(payload), False, 0)


def config(attempt: int = 0) -> cri.PodSandboxConfig:
    made = cri.PodSandboxConfig(annotations={"a": CANARY})
    made.metadata.CopyFrom(cri.PodSandboxMetadata(name="web", uid="u", namespace="shop", attempt=attempt))
    return made


def pull(attempt: int = 0, image: str = "reg.io/app:1") -> bytes:
    """kubelet's, with credentials."""
    secret = cri.AuthConfig(username=CANARY, password=CANARY, auth=CANARY)
    asked = cri.PullImageRequest(auth=secret, sandbox_config=config(attempt))
    asked.image.CopyFrom(cri.ImageSpec(image=image, annotations={"a": CANARY}, runtime_handler="kata"))
    return asked.SerializeToString()


def listed(*ids: str) -> bytes:
    rows = [cri.PodSandbox(id=one, metadata=config().metadata, runtime_handler="kata") for one in ids]
    return cri.ListPodSandboxResponse(items=rows).SerializeToString()


@pytest.mark.parametrize("version", ["v1", "v1alpha2"])
def test_a_pull_is_kept_from_its_beginning_without_its_credentials(
    version: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    there = Told()
    call = there.begin("PullImage", pull(), service="ImageService", version=version)
    row = PullRow("shop", "web", "u", 0, "reg.io/app:1", "kata", 100)
    assert there.book.pulls == (row,)
    there.now = 200
    there.end(call, cri.PullImageResponse(image_ref="sha256:ab").SerializeToString())
    assert there.book.pulls == (PullRow(*("shop", "web", "u", 0, "reg.io/app:1", "kata", 100, 200, "OK", "sha256:ab")),)
    for status, word in ((5, "NOT_FOUND"), (None, "none"), (99, "UNKNOWN")):
        there.end(there.begin("PullImage", pull(), service="ImageService"), status=status)
        assert there.book.pulls[-1].status == word
    kept = repr([vars(there.book), there.book.pulls]) + caplog.text
    assert CANARY not in kept


def test_sandboxes_are_known_by_calls_and_after_a_start_by_a_whole_list() -> None:
    there = Told()
    old = there.begin("ListPodSandbox", b"")
    there.run(1, "new")
    there.end(there.begin("ListPodSandbox", b"\x0a\x02\x0a\x00"), listed("filtered"))
    assert not there.book.listed
    there.end(old, listed("s1"), listed("s2"))
    assert there.book.listed
    known = [(one.id, one.attempt, one.handler) for one in there.book.sandboxes]
    assert known == [("new", 1, "kata"), ("s1", 0, "kata"), ("s2", 0, "kata")]
    assert there.begin("ListPodSandbox") is None, "not again at once"
    gone = cri.RemovePodSandboxRequest(pod_sandbox_id="s1").SerializeToString()
    there.end(there.begin("StopPodSandbox", gone), status=13)
    there.end(there.begin("StopPodSandbox", gone.replace(b"s1", b"s2")))
    assert [one.id for one in there.book.sandboxes if one.stopped] == ["s2"]
    there.end(there.begin("RemovePodSandbox", gone), status=13)
    there.end(there.begin("RemovePodSandbox", gone.replace(b"s1", b"s2")))
    assert [one.id for one in there.book.sandboxes] == ["new", "s1"]


def test_the_oldest_pull_goes_first_also_one_that_is_under_way() -> None:
    there = Told()
    first = there.begin("PullImage", pull(), service="ImageService")
    for number in range(MOST_PULLS):
        there.end(there.begin("PullImage", pull(number), service="ImageService"), b"")
    there.end(first, b"")
    assert (len(there.book.pulls), there.book.forgotten, there.book.pulls[0].attempt) == (MOST_PULLS, 1, 0)
    there.end(there.begin("PullImage", pull(7, "x" * 5000), service="ImageService"))
    assert len(there.book.pulls[-1].image) == 512


@pytest.mark.parametrize("requests", [[b"\x0a\xff"], [b"\x0a" * (2 << 20)], []], ids=["no CRI", "too long", "nothing"])
def test_what_cannot_be_read_tells_nothing_and_the_next_pull_is_heard(requests: Sequence[bytes]) -> None:
    there = Told()
    for name, service in (("PullImage", "ImageService"), ("RunPodSandbox", "RuntimeService")):
        there.end(there.begin(name, *requests, service=service), b"\x0a\xff")
    there.end(there.begin("PullImage", pull(), service="ImageService"), b"\x0a\xff")
    assert there.book.sandboxes == ()
    assert [(one.name, one.status) for one in there.book.pulls] == [("web", "OK")]
