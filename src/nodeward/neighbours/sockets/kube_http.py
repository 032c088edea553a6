"""HTTP to one Kubernetes API server: who we are, whom we trust, and a bound on every wait and every body.

Promises: each request ends within its timeouts; a body over its bound is an error; the token, the CA bundle and the
client certificate are read again when their files change (looked at no more often than `check_files_s`, and at once
after a 401), without dropping requests that are under way; no token, key or body of a request ever enters an error.
Files are read off the loop's thread.

Must not: know objects, retry, or decide what a refusal means; `neighbours.kubernetes` does.

    NodewardError
    └── KubeHttpError
        ├── KubeUnreachableError    no connection, TLS refused, connection lost
        │   └── KubeTimeoutError    a wait came to its end
        ├── KubeRefusedError        the server answered with a status of 400 or more
        ├── KubeTooLargeError       a body over its bound
        └── KubeCredentialsError    a token, CA or certificate file that cannot be used
"""

import asyncio
import os
import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import aiohttp

from nodeward.core.errors import NodewardError, WireError
from nodeward.host.clock import Clock
from nodeward.host.tls import marks_of
from nodeward.neighbours.formats.kube_objects import StatusObject, decode_status

_REFUSAL_BYTES = 64 * 1024
_CREDENTIAL_BYTES = 1024 * 1024
_CHUNK_BYTES = 64 * 1024


class KubeHttpError(NodewardError):
    """Something between us and the API server."""


class KubeUnreachableError(KubeHttpError):
    """No connection, or one that was lost."""


class KubeTimeoutError(KubeUnreachableError):
    """A wait came to its end."""


class KubeTooLargeError(KubeHttpError):
    """A body over its bound."""


class KubeCredentialsError(KubeHttpError):
    """A token, CA or certificate file that cannot be used."""


class KubeRefusedError(KubeHttpError):
    """The server answered with a status of 400 or more. `status` is HTTP's; `reason` is Kubernetes' word for it."""

    def __init__(self, what: str, status: int, said: StatusObject) -> None:
        super().__init__(f"{what}: {status} {said.reason} {said.message}".rstrip())
        self.status = status
        self.reason = said.reason


@dataclass(frozen=True, slots=True)
class Endpoint:
    """The API server's address and credentials. Text (`*_pem`, `token`) wins over the file of the same thing."""

    base_url: str
    ca_file: str = ""
    ca_pem: str = ""
    client_certificate_file: str = ""
    client_certificate_pem: str = ""
    client_key_file: str = ""
    client_key_pem: str = ""
    token_file: str = ""
    token: str = ""
    server_name: str = ""
    """The name the server's certificate must carry, where it is not the URL's host."""
    verify: bool = True
    unix_socket: str = ""

    def __repr__(self) -> str:
        return f"Endpoint({self.base_url!r})"

    def files(self) -> tuple[str, ...]:
        """The files that mean new credentials when they change."""
        every = (self.ca_file, self.client_certificate_file, self.client_key_file, self.token_file)
        return tuple(name for name in every if name)


@dataclass(frozen=True, slots=True)
class Waits:
    """Bounds in seconds. `read_s` is the longest silence, `total_s` the whole exchange."""

    connect_s: float = 5.0
    read_s: float = 20.0
    total_s: float = 30.0

    def timeout(self) -> aiohttp.ClientTimeout:
        return aiohttp.ClientTimeout(
            total=self.total_s, connect=self.connect_s, sock_connect=self.connect_s, sock_read=self.read_s
        )


@dataclass(frozen=True, slots=True)
class Identity:
    """What one request needs: the bearer token (empty for none) and the TLS context (None for plain HTTP)."""

    token: str
    tls: ssl.SSLContext | None

    def __repr__(self) -> str:
        return f"Identity(token={'set' if self.token else 'none'}, tls={self.tls is not None})"


class IdentitySource:
    """The present Identity of an Endpoint, read again when its files change."""

    def __init__(self, endpoint: Endpoint, clock: Clock, check_files_s: float = 10.0) -> None:
        self._endpoint = endpoint
        self._clock = clock
        self._check_ns = int(check_files_s * 1e9)
        self._checked_ns: int | None = None
        self._seen: tuple[tuple[int, ...], ...] = ()
        self._identity: Identity | None = None
        self._lock = asyncio.Lock()
        self.reloads = 0
        """How often the files were read."""

    async def current(self) -> Identity:
        """The identity to use now. While new files are half written the old identity goes on."""
        async with self._lock:
            now = self._clock.now_ns()
            fresh = self._checked_ns is not None and now - self._checked_ns < self._check_ns
            if self._identity is not None and fresh:
                return self._identity
            self._checked_ns = now
            seen = await asyncio.to_thread(marks_of, self._endpoint.files())
            if self._identity is None or seen != self._seen:
                try:
                    self._identity = await asyncio.to_thread(_load, self._endpoint)
                    self._seen = seen
                    self.reloads += 1
                except KubeCredentialsError:
                    if self._identity is None:
                        raise
            return self._identity

    def distrust(self) -> None:
        """Look at the files before the next request, however soon that is."""
        self._checked_ns = None


def _load(endpoint: Endpoint) -> Identity:
    """Reads token and certificates (blocking)."""
    token = endpoint.token
    if not token and endpoint.token_file:
        token = _read(endpoint.token_file, "token").strip()
        if not token or not token.isascii() or not token.isprintable():
            raise KubeCredentialsError(
                f"token file {endpoint.token_file} holds no token: one line of ASCII is expected"
            )
    secure = endpoint.base_url.startswith("https:")
    return Identity(token, _tls(endpoint) if secure else None)


def _read(name: str, what: str) -> str:
    try:
        with Path(name).open("rb") as file:
            data = file.read(_CREDENTIAL_BYTES + 1)
        if len(data) > _CREDENTIAL_BYTES:
            raise KubeCredentialsError(f"{what} file {name} is over {_CREDENTIAL_BYTES} bytes: it is no {what}")
        return data.decode("utf-8")
    except OSError as error:
        reason = error.strerror or "error"
        raise KubeCredentialsError(
            f"{what} file {name} cannot be read: {reason}; mount it or correct the path"
        ) from error
    except UnicodeDecodeError:
        raise KubeCredentialsError(f"{what} file {name} is not text") from None


def _tls(endpoint: Endpoint) -> ssl.SSLContext:
    ca = endpoint.ca_pem or (_read(endpoint.ca_file, "CA") if endpoint.ca_file else "")
    try:
        context = ssl.create_default_context(cadata=ca or None)
    except ssl.SSLError as error:
        source = "the CA given as text" if endpoint.ca_pem else f"CA file {endpoint.ca_file}"
        raise KubeCredentialsError(f"{source} holds no certificate that can be read: {error.reason}") from error
    if not endpoint.verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    certificate = endpoint.client_certificate_pem or _optional(endpoint.client_certificate_file, "client certificate")
    key = endpoint.client_key_pem or _optional(endpoint.client_key_file, "client key")
    if certificate and (key or "PRIVATE KEY" in certificate):
        _use_certificate(context, endpoint, certificate, key)
    elif certificate or key:
        raise KubeCredentialsError("a client certificate and a client key belong together: only one of them is given")
    return context


def _optional(name: str, what: str) -> str:
    return _read(name, what) if name else ""


def _use_certificate(context: ssl.SSLContext, endpoint: Endpoint, certificate: str, key: str) -> None:
    """Python loads keys from paths only, so the text goes through a file in memory: no key touches a disk."""
    memory = os.memfd_create("nodeward-client", os.MFD_CLOEXEC)
    try:
        with os.fdopen(memory, "wb", closefd=False) as file:
            file.write(f"{certificate.strip()}\n{key.strip()}\n".encode())
        context.load_cert_chain(f"/proc/self/fd/{memory}")
    except (ssl.SSLError, ValueError) as error:
        where = endpoint.client_certificate_file or "given as text"
        raise KubeCredentialsError(
            f"client certificate ({where}) and key do not form a pair that can be used: "
            f"{getattr(error, 'reason', None) or 'unreadable'}; give the certificate with its own, unencrypted key"
        ) from None
    finally:
        os.close(memory)


class KubeHttp:
    """Sends requests to one API server over reused connections. Opens itself at the first request; `aclose` ends it."""

    def __init__(self, endpoint: Endpoint, clock: Clock, *, check_files_s: float = 10.0, user_agent: str) -> None:
        self.endpoint = endpoint
        self.identity = IdentitySource(endpoint, clock, check_files_s)
        self._agent = user_agent
        self._session: aiohttp.ClientSession | None = None
        self.server_date = ""
        """The Date header of the last answer, whatever its status."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Closes every connection."""
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def get(self, path: str, query: Mapping[str, str], *, waits: Waits, max_bytes: int) -> bytes:
        """The body of a GET that succeeded."""
        async with self._open(path, query, waits) as response:
            return await _whole(response, f"GET {path}", max_bytes)

    async def ask(
        self,
        path: str,
        body: bytes,
        verb: str = "POST",
        kind: str = "application/json",
        *,
        waits: Waits,
        max_bytes: int,
    ) -> bytes:
        """The body that answers a request with a body of this content type. It is not tried again."""
        async with self._open(path, {}, waits, verb=verb, body=body, kind=kind) as response:
            return await _whole(response, f"{verb} {path}", max_bytes)

    async def send(self, verb: str, path: str, body: bytes, kind: str, *, waits: Waits) -> None:
        """A request with a body of this content type; of the answer only its status counts. It is not tried again."""
        async with self._open(path, {}, waits, verb=verb, body=body, kind=kind):
            pass

    @asynccontextmanager
    async def stream(
        self, path: str, query: Mapping[str, str], *, waits: Waits
    ) -> AsyncGenerator[AsyncIterator[bytes], None]:
        """A GET of an endless body, in pieces as they arrive."""
        async with self._open(path, query, waits) as response:
            yield response.content.iter_any()

    @asynccontextmanager
    async def _open(
        self,
        path: str,
        query: Mapping[str, str],
        waits: Waits,
        *,
        verb: str = "GET",
        body: bytes | None = None,
        kind: str = "",
    ) -> AsyncGenerator[aiohttp.ClientResponse, None]:
        what = f"{verb} {self.endpoint.base_url}{path}"
        identity = await self.identity.current()
        headers = {"Accept": "application/json", "User-Agent": self._agent}
        if identity.token:
            headers["Authorization"] = f"Bearer {identity.token}"
        if kind:
            headers["Content-Type"] = kind
        url = self.endpoint.base_url.rstrip("/") + path
        try:
            async with self._connected().request(
                verb,
                url,
                data=body,
                params=dict(query),
                headers=headers,
                ssl=identity.tls if identity.tls is not None else True,
                server_hostname=self.endpoint.server_name or None,
                timeout=waits.timeout(),
                allow_redirects=False,
            ) as response:
                self.server_date = response.headers.get("Date", "")
                if response.status not in (200, 201):
                    await self._refused(what, response)
                yield response
        except TimeoutError as error:
            raise KubeTimeoutError(
                f"{what}: no answer in time ({waits}); is the server overloaded or the way cut?"
            ) from error
        except (aiohttp.ClientError, OSError, ValueError) as error:
            raise KubeUnreachableError(f"{what}: {type(error).__name__}: {error}") from error

    async def _refused(self, what: str, response: aiohttp.ClientResponse) -> None:
        body = await response.content.read(_REFUSAL_BYTES)
        if response.status == 401:
            self.identity.distrust()
        try:
            said = decode_status(body)
        except WireError:
            said = StatusObject(code=response.status, reason=response.reason or "")
        raise KubeRefusedError(what, response.status, said)

    def _connected(self) -> aiohttp.ClientSession:
        if self._session is None:
            unix = self.endpoint.unix_socket
            connector = aiohttp.UnixConnector(unix) if unix else aiohttp.TCPConnector(limit=8)
            self._session = aiohttp.ClientSession(connector=connector, auto_decompress=True, trust_env=False)
        return self._session


async def _whole(response: aiohttp.ClientResponse, what: str, max_bytes: int) -> bytes:
    parts, size = [], 0
    async for chunk in response.content.iter_chunked(_CHUNK_BYTES):
        size += len(chunk)
        if size > max_bytes:
            raise KubeTooLargeError(f"{what}: a body of more than {max_bytes} bytes; it was not read to its end")
        parts.append(chunk)
    return b"".join(parts)
