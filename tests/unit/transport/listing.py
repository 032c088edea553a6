"""The frames that a relay has to say, listed one by one beside it: from what either end sent, and what was decided.

Written apart from the product. What came goes on as it came and in order. Of its own the relay says, and
nothing else: RST_STREAM where it cuts a call off, with the answer of a refused one; WINDOW_UPDATE for what it keeps or
drops; another request body where that was the verdict, and pieces of one that finds no room; later answers in literals
once the client's decoder has missed a block. Each of these is in the lists with all its bytes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from hpack import Decoder

from tests.unit.transport.strict import (
    ACK,
    CONTINUATION,
    DATA,
    END_HEADERS,
    END_STREAM,
    HEADERS,
    INITIAL,
    PADDED,
    PREFACE,
    PRIORITY,
    RST,
    SETTINGS,
    WINDOW,
    Headers,
    message,
)

Frame = tuple[int, int, int, bytes]
"""Type, flags, stream and payload."""
FIRST, LOW, LONGEST = 65_535, 32 * 1024, 16_384
CANCEL, NO_ERROR = 8, 0
EMPTY = b"\x20"
"""Tells a decoder to empty its table."""
REFUSED: Headers = (
    (b":status", b"200"),
    (b"content-type", b"application/grpc"),
    (b"grpc-status", b"8"),
    (b"grpc-message", b"no"),
)
"""What `Refuse(8, "no")` is answered."""


@dataclass(frozen=True)
class Block:
    """A header block of the relay's own: literals behind `news` of the table, or where that is None, of a smaller one
    if the client has still to hear of it."""

    stream: int
    ends: bool
    headers: Headers
    news: bytes | None


Said = Frame | Block


@dataclass
class Account:
    """One window: what the client may send, and what the runtime takes."""

    client: int
    runtime: int

    def due(self, kept: int) -> int:
        """What the client is to be granted, and is: all that the runtime takes beyond what is kept for it; where bytes
        are kept and the client has little left, as much as if they were not."""
        owed = self.runtime - kept - self.client
        if owed <= 0:
            owed = max(0, self.runtime - self.client) if kept and self.client < LOW else 0
        self.client += owed
        return owed


@dataclass
class Asked:
    """One call."""

    account: Account | None
    """Of a held one, until its request has gone on."""
    holding: bool
    ended: bool = False
    wanted: list[Frame] = field(default_factory=list)
    """DATA that is to go on."""
    got: list[Frame] = field(default_factory=list)
    """DATA that has."""

    def kept(self) -> tuple[int, int]:
        """How many frames of the request the relay still has, and their bytes; each that went on is explained."""
        wanted, rest = list(self.wanted), b""
        for piece in self.got:
            assert wanted, f"a frame that nobody sent: {piece}"
            if not rest and piece == wanted[0]:
                del wanted[0]
                continue
            _, flags, stream, _ = wanted[0]
            content = rest or unpadded(wanted[0])
            whole = piece[3] == content
            assert piece == (DATA, flags & END_STREAM if whole else 0, stream, content[: len(piece[3])])
            assert piece[3] or whole, "an empty piece"
            rest = content[len(piece[3]) :]
            if whole:
                del wanted[0]
        return len(wanted), sum(len(one[3]) for one in wanted) - (len(wanted[0][3]) - len(rest) if rest else 0)

    def forget(self) -> None:
        """What is kept never goes on; what may come yet is nobody's any more."""
        self.account, self.holding, self.wanted, self.got = None, False, [], []


def unpadded(frame: Frame) -> bytes:
    """What it says."""
    _, flags, _, payload = frame
    return payload[1 : len(payload) - payload[0]] if flags & PADDED else payload


def frame_starts(data: bytes) -> list[tuple[int, int]]:
    """Where frames begin, and their types; data begins with a preface or with a frame."""
    found: list[tuple[int, int]] = []
    at = len(PREFACE) if PREFACE.startswith(data[: len(PREFACE)]) else 0
    while len(data) >= at + 9:
        found.append((at, data[at + 3]))
        at += 9 + int.from_bytes(data[at : at + 3], "big")
    return found


def whole_frames(buffer: bytearray) -> list[Frame]:
    """Takes those that are whole out of the buffer, and a whole preface."""
    data, found = bytes(buffer), list[Frame]()
    for at, kind in frame_starts(data):
        end = at + 9 + int.from_bytes(data[at : at + 3], "big")
        if end <= len(data):
            found.append((kind, data[at + 4], int.from_bytes(data[at + 5 : at + 9], "big"), data[at + 9 : end]))
            del buffer[: end - (len(data) - len(buffer))]
    return found


class Listing:
    """What is to come at either end. `holds` says whether the call on a stream is decided."""

    def __init__(self, holds: Callable[[int], bool]) -> None:
        self.to_runtime: list[Said] = []
        """Without DATA, which are with the calls."""
        self.to_client: list[Said] = []
        self._holds = holds
        self._calls: dict[int, Asked] = {}
        self._cut: set[int] = set()
        self._connection = Account(FIRST, FIRST)
        self._first, self._acknowledged = FIRST, FIRST
        self._announced: list[int | None] = []
        self._decoder = Decoder(1 << 20)
        self._decoder.max_allowed_table_size = 1 << 16
        self._literals = self._emptied = False
        """Whether answers are said in literals from now on, and whether the client has been told to empty its table."""
        self._up_block: list[Said] = []
        self._down_block: list[Frame] = []

    # ---- what happens

    def from_client(self, frame: Frame) -> None:
        """The relay has it whole."""
        kind, flags, stream, payload = frame
        if kind in (HEADERS, CONTINUATION):
            self._up_block.append(frame)
            if flags & END_HEADERS:
                self.to_runtime += self._up_block
                self._up_block = []
                if stream not in self._calls:
                    held = self._holds(stream)
                    self._calls[stream] = Asked(Account(self._first, self._least()) if held else None, held)
        elif kind == DATA:
            self._connection.client -= len(payload)
            if stream not in self._cut:
                self._wants(self._calls[stream], frame)
        elif kind in (RST, WINDOW) and stream in self._cut:
            return
        else:
            self.to_runtime.append(frame)
            if kind == RST:
                self._calls[stream].forget()
            elif kind == SETTINGS and flags & ACK:
                self._first_windows(None, acknowledged=True)

    def _wants(self, call: Asked, frame: Frame) -> None:
        call.wanted.append(frame)
        call.ended = call.ended or bool(frame[1] & END_STREAM)
        if call.account is not None:
            call.account.client -= len(frame[3])

    def from_runtime(self, frame: Frame) -> None:
        """The relay has it whole."""
        kind, flags, stream, payload = frame
        if kind in (HEADERS, CONTINUATION):
            self._down_block.append(frame)
            if flags & END_HEADERS:
                block, self._down_block = self._down_block, []
                self._answers(stream, block)
        elif kind == WINDOW:
            self._opens(stream, int.from_bytes(payload, "big"))
        elif stream in self._cut:
            if kind == DATA and payload:
                self.to_runtime.append((WINDOW, 0, 0, len(payload).to_bytes(4, "big")))
        else:
            self.to_client.append(frame)
            if kind == RST:
                self._calls[stream].forget()
            elif kind == SETTINGS and not flags & ACK:
                pairs = {int.from_bytes(payload[at : at + 2], "big"): payload[at + 2 : at + 6]
                         for at in range(0, len(payload), 6)}  # fmt: skip
                self._first_windows(int.from_bytes(pairs[INITIAL], "big") if INITIAL in pairs else None)

    def _answers(self, stream: int, block: list[Frame]) -> None:
        _, flags, _, first = block[0]
        fragment = unpadded(block[0])[5 if flags & PRIORITY else 0 :] if flags & (PADDED | PRIORITY) else first
        whole = fragment + b"".join(one[3] for one in block[1:])
        headers = tuple((bytes(name), bytes(value)) for name, value in self._decoder.decode(whole, raw=True))
        if stream in self._cut:
            self._literals = True
            return
        self.to_client += [self._block(stream, bool(flags & END_STREAM), headers)] if self._literals else block
        call = self._calls[stream]
        if flags & END_STREAM and (call.account is not None or call.kept()[0]):
            self._cut_off(stream)
            if not call.ended:
                self.to_client.append((RST, 0, stream, NO_ERROR.to_bytes(4, "big")))

    def _block(self, stream: int, ends: bool, headers: Headers) -> Block:
        emptied, self._emptied = self._emptied, self._literals
        return Block(stream, ends, headers, (b"" if emptied else EMPTY) if self._literals else None)

    def _opens(self, stream: int, size: int) -> None:
        account = self._calls[stream].account if stream in self._calls else None
        if stream == 0:
            account = self._connection
        if account is None:
            if stream not in self._cut:
                self.to_client.append((WINDOW, 0, stream, size.to_bytes(4, "big")))
            return
        account.runtime += size
        self._grants(stream, account)

    def decided(self, stream: int, kind: str, size: int) -> None:
        """A verdict is told: `replace` by a message of so many bytes, `refuse`, or that it goes on."""
        call = self._calls[stream]
        if not call.holding:
            return
        call.holding = False
        if kind == "refuse":
            self._cut_off(stream)
            self.to_client.append(self._block(stream, True, REFUSED))
        elif kind == "replace":
            body = message(b"R" * size)
            pieces = [body[at : at + LONGEST] for at in range(0, len(body), LONGEST)]
            flags = [0] * (len(pieces) - 1) + [END_STREAM]
            call.wanted = [(DATA, flag, stream, piece) for flag, piece in zip(flags, pieces, strict=True)]

    def came(self, at_runtime: list[Frame], at_client: list[Frame]) -> None:
        """All that came of it: what was listed, and nothing else."""
        for _, _, stream, payload in (one for one in at_runtime if one[0] == DATA):
            self._connection.runtime -= len(payload)
            account = self._calls[stream].account
            if account is not None:
                account.runtime -= len(payload)
        for one in at_runtime:
            if one[0] == DATA:
                self._calls[one[2]].got.append(one)
        self._grants(0, self._connection)
        for stream, call in self._calls.items():
            if call.account is not None and not call.ended:
                self._grants(stream, call.account)
            elif call.account is not None and not call.holding and not call.kept()[0]:
                call.account = None
        _same(self.to_runtime, [one for one in at_runtime if one[0] != DATA])
        _same(self.to_client, at_client)
        self.to_runtime, self.to_client = [], []

    # ---- windows, and the end of calls

    def _grants(self, stream: int, account: Account) -> None:
        calls = [self._calls[stream]] if stream else self._calls.values()
        due = account.due(sum(call.kept()[1] for call in calls))
        if due:
            self.to_client.append((WINDOW, 0, stream, due.to_bytes(4, "big")))

    def _least(self) -> int:
        """The first window that the relay may count on: of those that the client has not acknowledged the smallest."""
        return min((self._acknowledged, *(one for one in self._announced if one is not None)))

    def _first_windows(self, said: int | None, acknowledged: bool = False) -> None:
        """The runtime announced another first window, or none; or the client acknowledged the oldest of them."""
        before, least = self._first, self._least()
        if acknowledged:
            oldest = self._announced.pop(0) if self._announced else None
            self._acknowledged = self._acknowledged if oldest is None else oldest
        else:
            self._announced.append(said)
            self._first = before if said is None else said
        for call in self._calls.values():
            if call.account is not None:
                call.account.client += self._first - before
                call.account.runtime += self._least() - least

    def _cut_off(self, stream: int) -> None:
        self._calls[stream].forget()
        self._cut.add(stream)
        self.to_runtime.append((RST, 0, stream, CANCEL.to_bytes(4, "big")))


def _same(listed: list[Said], came: list[Frame]) -> None:
    """Frame by frame."""
    rest = list(came)
    for one in listed:
        assert rest, f"{one} did not come"
        frame = rest.pop(0)
        if not isinstance(one, Block):
            assert frame == one
            continue
        kind, flags, stream, payload = frame
        assert (kind, stream, bool(flags & END_STREAM)) == (HEADERS, one.stream, one.ends)
        while not flags & END_HEADERS:
            _, flags, _, more = rest.pop(0)
            payload += more
        literals = b"".join(_literal(*header) for header in one.headers)
        assert payload.endswith(literals)
        news = payload.removesuffix(literals)
        assert news == one.news or (one.news is None and (not news or (news[0] & 0xE0 == 0x20 and len(news) < 4)))
    assert not rest, f"{rest[0]} is none of the relay's"


def _literal(name: bytes, value: bytes) -> bytes:
    """A header by RFC 7541, 6.2.2: without indexing, with a new name."""
    return b"\0" + _length(len(name)) + name + _length(len(value)) + value


def _length(size: int) -> bytes:
    if size < 127:
        return bytes((size,))
    size, said = size - 127, b"\x7f"
    while size >= 128:
        size, said = size >> 7, said + bytes((size & 127 | 128,))
    return said + bytes((size,))
