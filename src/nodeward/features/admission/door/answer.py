"""An answer, and the bytes of HTTP/1.1 that carry it.

Must not: be used on more than one thread; the head of a second is made once.
"""

import time
from email.utils import formatdate
from http import HTTPStatus
from typing import NamedTuple


class Answer(NamedTuple):
    """What is said to one request."""

    body: bytes
    status: int = 200
    reviewed: bool = False
    """It is the answer to a review, in JSON; else text for people."""
    ends: bool = False
    """The connection ends after it."""


def said(text: str, status: int = 200, *, ends: bool = False) -> Answer:
    """A line of text."""
    return Answer(f"{text}\n".encode(), status, False, ends)


class Heads:
    """Writes answers."""

    __slots__ = ("_second", "_usual")

    def __init__(self) -> None:
        self._second = 0
        self._usual = b""

    def written(self, answer: Answer, *, ends: bool, bodyless: bool) -> bytes:
        """Head and body; `bodyless` is for HEAD."""
        now = int(time.time())
        if now != self._second:
            date = formatdate(now, usegmt=True).encode("ascii")
            self._second, self._usual = now, b"\r\nDate: %b\r\nContent-Length: " % date
        if answer.reviewed and not ends:
            return b"HTTP/1.1 200 OK\r\nContent-Type: application/json%b%d\r\n\r\n%b" % (
                self._usual,
                len(answer.body),
                answer.body,
            )
        return b"HTTP/1.1 %d %b\r\nContent-Type: %b%b%d\r\n%b\r\n%b" % (
            answer.status,
            HTTPStatus(answer.status).phrase.encode("ascii"),
            b"application/json" if answer.reviewed else b"text/plain; charset=utf-8",
            self._usual,
            len(answer.body),
            b"Connection: close\r\n" if ends else b"",
            b"" if bodyless else answer.body,
        )
