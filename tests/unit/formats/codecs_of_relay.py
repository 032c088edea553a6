"""What clients and runtimes of CRI send through the relay, what the relay makes of it, and what dumps are read from."""

import functools
import gzip
import io
import random
from collections.abc import Callable, Sequence

from nodeward.contracts import cri_pb2 as cri
from nodeward.core.decision import Adjustment
from nodeward.neighbours.cri import dump_rules
from nodeward.neighbours.cri import mapping as cri_mapping
from nodeward.neighbours.cri.calls import Pass
from nodeward.neighbours.formats import grpc_messages
from nodeward.programs.cri_resmgr import go_flags
from nodeward.programs.dump import frames
from nodeward.programs.dump import text as dump_text
from nodeward.programs.dump.lines import MAX_LINE, Reader
from nodeward.programs.dump.read import parse_tree
from tests.unit.formats.sample import Codec, Reached, Sample, texts, whole
from tests.unit.neighbours.cri.between import OK, TRAILERS, Between
from tests.unit.neighbours.cri.strict import DATA, END_STREAM, StrictEnd, frame, message, request

GUNZIPPED = 2 << 20
"""Bytes of a message that were compressed."""


def _calls_of_cri(methods: Sequence[str], padding: int = 0) -> list[Sample]:
    """A unary call of each, on a connection of its own; the payload is its message and the framing is HTTP/2's."""

    def framed(method: str) -> Callable[[bytes], bytes]:
        end = StrictEnd(client=True)
        end.headers(1, request(method, (b"grpc-timeout", b"20S")), split=30, padding=3)
        begin = bytes(end.out)
        return lambda payload: begin + _data(1, message(payload), END_STREAM)

    payload = b"name" * (8 + padding // 4)
    return [Sample(payload, framed(method)) for method in methods]


def _data(stream: int, body: bytes, last: int = 0) -> bytes:
    """In frames of DATA, of which the last one has these flags."""
    places = range(0, len(body), 16_384)
    return b"".join(frame(DATA, last * (at == places[-1]), stream, body[at : at + 16_384]) for at in places)


def _read_cri(enforces: bool, pieces: Sequence[bytes], reached: Reached) -> None:
    """It is reached when somebody is given a call's message: who decides the call, or who only watches."""
    rig = Between(enforces=enforces, greet=False)
    for piece in pieces:
        rig.give(rig.client, piece, heard=False)
        rig.session.client_out.clear()
        rig.session.runtime_out.clear()
        if rig.judge.asked if enforces else rig.watcher.messages("request"):
            reached()
    rig.session.close("the end")


def _answers_of_cri(padding: int = 0) -> list[Sample]:
    """A runtime's answers to what `_asked` asks: its settings, then headers, one message and trailers."""

    def framed(stream: int) -> Callable[[bytes], bytes]:
        end = StrictEnd(client=False)
        end.headers(stream, OK, split=8, padding=3)
        before = len(end.out)
        end.headers(stream, TRAILERS, end=True)
        begin, rest = bytes(end.out[:before]), bytes(end.out[before:])
        return lambda payload: begin + _data(stream, message(payload)) + rest

    payload = b"name" * (8 + padding // 4)
    return [Sample(payload, framed(stream)) for stream in (1, 3)]


@functools.cache
def _asked() -> bytes:
    """A client's bytes with a call that passes, and one that is held where calls are."""
    end = StrictEnd(client=True)
    for stream, method in ((1, "Version"), (3, "HoldCreate")):
        end.headers(stream, request(method))
        end.data(stream, message(b"ask"), end=True)
    return bytes(end.out)


def _read_answers_of_cri(enforces: bool, pieces: Sequence[bytes], reached: Reached) -> None:
    rig = Between(enforces=enforces, greet=False)
    rig.judge.at_once = lambda call, message: Pass()
    rig.give(rig.client, _asked(), heard=False)
    for piece in pieces:
        rig.give(rig.runtime, piece, heard=False)
        rig.session.client_out.clear()
        rig.session.runtime_out.clear()
        if rig.watcher.messages("response"):
            reached()
    rig.session.close("the end")


# ---- what a relay that decides, and the writer of its dump, read of CRI's messages


def _messages_of_cri(padding: int = 0) -> list[Sample]:
    """By its first byte each is a create, an update, or a list."""
    notes = {"nodeward.io/limits": '{"app":{"sgx_epc":"4096"}}', "a": "b" * (1 + padding)}
    create = cri.CreateContainerRequest(pod_sandbox_id="s")
    create.sandbox_config.metadata.CopyFrom(cri.PodSandboxMetadata(name="web", uid="u", namespace="ns"))
    create.sandbox_config.annotations.update(notes)
    create.config.metadata.name = "app"
    create.config.linux.resources.unified["misc.max"] = "sgx_epc 1"
    update = cri.UpdateContainerResourcesRequest(container_id="c", annotations=notes)
    update.linux.unified["misc.max"] = "sgx_epc 1"
    pods = cri.ListPodSandboxResponse()
    pods.items.add(id="s", metadata=create.sandbox_config.metadata, annotations=notes)
    containers = cri.ListContainersResponse()
    containers.containers.add(id="c", pod_sandbox_id="s", metadata=create.config.metadata, annotations=notes)
    made = (create, update, pods, containers)
    return [
        Sample(one.SerializeToString(), kind.__add__) for kind, one in zip((b"c", b"u", b"p", b"s"), made, strict=True)
    ]


@whole
def _read_messages_of_cri(data: bytes) -> None:
    kind, payload = data[:1], data[1:]
    if kind not in (b"c", b"u", b"p", b"s"):
        return
    limits = Adjustment({"misc.max": "sgx_epc 4096"})
    if kind == b"c":
        cri_mapping.creating(payload, "create-1")
        cri_mapping.changed_create(payload, limits)
    elif kind == b"u":
        cri_mapping.changed_update(payload, limits)
    else:
        (cri_mapping.sandboxes if kind == b"p" else cri_mapping.containers)((payload,))


def dumped(payload: bytes) -> bytes:
    """A message in the frames by which a relay tells its dump of it."""
    path = "/runtime.v1.RuntimeService/CreateContainer"
    return b"".join(frames.encode(frames.Frame(frames.FrameKind.REQUEST, 1, 1, 0, path, payload, len(payload))))


def _dumps(padding: int = 0) -> list[Sample]:
    create = cri.CreateContainerRequest(pod_sandbox_id="s" * (1 + padding))
    create.config.envs.add(key="TOKEN", value=b"hidden")
    create.config.mounts.add(container_path="/a", host_path="/b")
    return [Sample(create.SerializeToString(), dumped)]


def _read_dumped(pieces: Sequence[bytes], reached: Reached) -> None:
    reader = frames.FrameReader()
    for piece in pieces:
        for told in reader.feed(piece):
            reached()
            kinds = dump_text.kinds("RuntimeService", "CreateContainer")
            dump_text.body(kinds[0] if kinds else None, told.payload)


def _dump_lines(padding: int = 0) -> list[Sample]:
    """A message with a line as long as one may be, and one with many."""
    asked = dump_text.request(dump_text.Call(7, "Version", "passthrough"), 10**18, ["version: v1"])
    long = "c" * max(1, min(padding, MAX_LINE) - 200)
    said = dump_text.reply(dump_text.Call(7, "Version", "passthrough"), 10**6, [f"name: {long}", "version: v2"])
    failed = dump_text.failed(dump_text.Call(8, "Status", "relayed"), 10**6, "why\nnot")
    many = dump_text.reply(dump_text.Call(7, "Version", "passthrough"), 10**6, ["- one of many"] * (padding // 60))
    texts = [asked + said + failed, dump_text.remark(10**18, "a word") + said]
    return [Sample(text.encode()) for text in [*texts, *([many] if padding else [])]]


@whole
def _read_dump_lines(data: bytes) -> None:
    reader = Reader()
    list(reader.read(io.BytesIO(data)))
    list(reader.left())


def _compressed(padding: int = 0) -> list[Sample]:
    noise = random.Random(1).randbytes(8 + padding)
    whole = (gzip.compress(noise, mtime=0), b"50S", b"no%20more%C3%A9")
    return [Sample(one, functools.partial(bytes.__add__, bytes((number,)))) for number, one in enumerate(whole)]


@whole
def _read_grpc(data: bytes) -> None:
    if data[:1] == b"\1":
        grpc_messages.timeout_ns(data[1:])
    elif data[:1] == b"\2":
        grpc_messages.decode_text(data[1:])
    else:
        grpc_messages.gunzip(memoryview(data)[1:], GUNZIPPED)


@whole
def _read_rules(data: bytes) -> None:
    """As a command line gives them: with half a surrogate pair for each byte that is no text."""
    dump_rules.parse(data.decode("utf-8", "surrogateescape")).level("Version")


_SWITCHES = {"config": False, "policy": False, "dump": True, "dump-file": False, "force": True}


@whole
def _read_flags(data: bytes) -> None:
    text = data.decode("utf-8", "surrogateescape")
    if "\n" in text:
        go_flags.is_lines(text)
        go_flags.parse(["-config", "cri.conf"], _SWITCHES, lambda _: text)
    else:
        go_flags.parse(text.split(" "), _SWITCHES)


def codecs(padding: int) -> dict[str, Codec]:
    relayed = ("formats.http2_frames", "formats.header_blocks", "formats.grpc_messages")
    passed, held = _calls_of_cri(("Version", "HoldCreate"), padding), _calls_of_cri(("HoldCreate",), padding)
    return {
        "relay": Codec(passed, functools.partial(_read_cri, False), relayed[:2]),
        "relay-held": Codec(held, functools.partial(_read_cri, True), relayed),
        "relay-answers": Codec(_answers_of_cri(padding), functools.partial(_read_answers_of_cri, False), relayed),
        "relay-answers-held": Codec(_answers_of_cri(padding), functools.partial(_read_answers_of_cri, True), relayed),
        "cri-messages": Codec(_messages_of_cri(padding), _read_messages_of_cri, ("formats.protobuf",)),
        "grpc": Codec(_compressed(padding), _read_grpc, ("formats.grpc_messages",)),
        "dump": Codec(_dumps(padding), _read_dumped, ("dump.frames", "dump.text")),
        "dump-lines": Codec(_dump_lines(padding), _read_dump_lines, ("dump.lines",)),
        "dump-tree": Codec(
            texts("dump-tree", padding), whole(lambda data: parse_tree(data.split(b"\n"))), ("dump.read",)
        ),
        "dump-rules": Codec(texts("dump-rules", padding), _read_rules, ("cri.dump_rules",)),
        "go-flags": Codec(texts("go-flags", padding), _read_flags, ("cri_resmgr.go_flags",)),
    }
