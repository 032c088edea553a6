"""A Kubernetes client for tests: one request at a time, objects as JSON values.

Written with the standard library alone, so that nothing of ours can agree with itself.
"""

from __future__ import annotations

import http.client
import json
import select
import ssl
import threading
from pathlib import Path
from urllib.parse import urlsplit

from tests.patience import scaled
from tests.peers.nriside import Record, member

CALL_TIMEOUT_S = scaled(30.0)
STRATEGIC = "application/strategic-merge-patch+json"
MERGE = "application/merge-patch+json"


class ApiError(Exception):
    def __init__(self, said: str, status: int) -> None:
        super().__init__(said)
        self.status = status


class KubeClient:
    """Whoever has the token. `warned` is what the server's last answer warned of, as its headers have it."""

    def __init__(self, base_url: str, ca_file: Path, token: str) -> None:
        self._host = urlsplit(base_url).netloc
        self._trust = ssl.create_default_context(cafile=str(ca_file))
        self._token = token
        self._links = threading.local()
        self.warned: list[str] = []

    def call(self, verb: str, path: str, body: Record | None = None, kind: str = "application/json") -> Record:
        """The object that the server answers with; ApiError for any status but 2xx."""
        content = None if body is None else json.dumps(body).encode()
        head = {"Authorization": f"Bearer {self._token}", "Content-Type": kind}
        link = self._link()
        try:
            link.request(verb, path, content, head)
            answer = link.getresponse()
            said = answer.read()
            self.warned = answer.headers.get_all("Warning") or []
        except BaseException:
            link.close()
            raise
        if answer.status // 100 != 2:
            raise ApiError(f"{verb} {path}: {answer.status} {said.decode(errors='replace')[:1000]}", answer.status)
        found: Record = json.loads(said)
        return found

    def _link(self) -> http.client.HTTPSConnection:
        """The thread's connection, which stays: half of what a call takes is to make one. One that the server has ended
        meanwhile is readable."""
        link: http.client.HTTPSConnection | None = getattr(self._links, "link", None)
        if link is None:
            link = http.client.HTTPSConnection(self._host, timeout=CALL_TIMEOUT_S, context=self._trust)
            self._links.link = link
        if link.sock is not None:
            poll = select.poll()
            poll.register(link.sock, select.POLLIN)
            if poll.poll(0):
                link.close()  # the next request makes it anew
        return link

    def find(self, path: str) -> Record | None:
        try:
            return self.call("GET", path)
        except ApiError as error:
            if error.status == 404:
                return None
            raise

    def node_ready(self, name: str) -> bool:
        node = self.find(f"/api/v1/nodes/{name}") or {}
        conditions = member(node, "status", "conditions")
        return isinstance(conditions, list) and any(
            isinstance(one, dict) and (one.get("type"), one.get("status")) == ("Ready", "True") for one in conditions
        )
