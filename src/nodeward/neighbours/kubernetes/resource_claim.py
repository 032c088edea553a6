"""Reads a ResourceClaim (resource.k8s.io/v1): what was allocated to it of one driver, and for which pods.

Must not: judge, or write. A claim's opaque parameters are handed on as they are.
"""

from collections.abc import Iterable, Iterator

from msgspec import Raw, Struct, field
from msgspec.json import Decoder

from nodeward.core.claims import MOST_RESULTS, Allocated, Claim, ClaimUid
from nodeward.core.errors import WireError
from nodeward.core.quantity import QuantityError, exact_units
from nodeward.core.workload import PodUid
from nodeward.neighbours.formats.kube_objects import decode_bounded
from nodeward.neighbours.kubernetes.errors import errors_of
from nodeward.neighbours.sockets.kube_http import KubeHttp, Waits

MAX_BYTES = 2 * 1024 * 1024
"""An object in etcd is at most 1.5 MiB; a claim's opaque parameters may have 10 KiB a request."""
RIGHTS = "get on resourceclaims"
WAITS = Waits(connect_s=2.0, read_s=5.0, total_s=5.0)
"""Kubelet waits 45 seconds for a Prepare, and most of that is for a key."""
_EXTENDED = "resource.kubernetes.io/extended-resource-claim"


class _Result(Struct, frozen=True, rename={"share": "shareID", "consumed": "consumedCapacity", "admin": "adminAccess"}):
    request: str = ""
    driver: str = ""
    pool: str = ""
    device: str = ""
    share: str | None = None
    consumed: dict[str, str | int] | None = None
    admin: bool | None = None


class _Opaque(Struct, frozen=True):
    driver: str = ""
    parameters: Raw = Raw(b"null")


class _Config(Struct, frozen=True):
    source: str = ""
    requests: tuple[str, ...] | None = None
    opaque: _Opaque | None = None


class _Devices(Struct, frozen=True):
    results: tuple[_Result, ...] | None = None
    config: tuple[_Config, ...] | None = None


class _Allocation(Struct, frozen=True):
    devices: _Devices = _Devices()


class _Consumer(Struct, frozen=True, rename={"group": "apiGroup"}):
    resource: str = ""
    name: str = ""
    uid: str = ""
    group: str | None = None


class _Status(Struct, frozen=True, rename="camel"):
    allocation: _Allocation | None = None
    reserved_for: tuple[_Consumer, ...] | None = None


class _Metadata(Struct, frozen=True):
    uid: str
    namespace: str
    name: str
    annotations: dict[str, str] | None = None


class _Claim(Struct, frozen=True):
    metadata: _Metadata
    status: _Status = field(default=_Status())


_CLAIM = Decoder(_Claim)


def claim(data: bytes, driver: str) -> Claim | None:
    """The claim; None where nothing is allocated to it. Of a claim with devices of several drivers only this one's."""
    one = decode_bounded(_CLAIM, data, "ResourceClaim", MAX_BYTES)
    if one.status.allocation is None:
        return None
    results = one.status.allocation.devices.results or ()
    if len(results) > MOST_RESULTS:
        raise WireError("ResourceClaim", f"{len(results)} results: a claim has at most {MOST_RESULTS}")
    pods = {
        PodUid(of.uid): of.name
        for of in one.status.reserved_for or ()
        if of.resource == "pods" and not (of.group or "")
    }
    of, allocated = one.metadata, tuple(_allocated(each) for each in results if each.driver == driver)
    extended = (of.annotations or {}).get(_EXTENDED) == "true"
    parameters = tuple(_parameters(one.status.allocation.devices.config or (), allocated, driver))
    return Claim(ClaimUid(of.uid), of.namespace, of.name, allocated, pods, extended, parameters)


def _parameters(config: Iterable[_Config], allocated: Iterable[Allocated], driver: str) -> Iterator[str]:
    """Those for requests that were given devices of this driver. A request with subrequests stands for all of them."""
    mine = [name for one in allocated for name in (one.request, one.request.partition("/")[0])]
    for each in sorted(config, key=lambda one: one.source == "FromClaim"):
        is_for = not each.requests or any(name in mine for name in each.requests)
        if is_for and each.opaque is not None and each.opaque.driver == driver:
            yield bytes(each.opaque.parameters).decode("utf-8", "replace")


def _allocated(of: _Result) -> Allocated:
    consumed = {}
    for name, amount in (of.consumed or {}).items():
        try:
            exact = exact_units(str(amount))
        except QuantityError:
            continue
        if exact.denominator == 1:
            consumed[name.rpartition("/")[2]] = exact.numerator
    return Allocated(of.request, of.device, of.pool, of.share or "", consumed, of.admin or False)


class ClaimReader:
    """Reads the claims of one driver."""

    def __init__(self, http: KubeHttp, driver: str) -> None:
        self._http, self._driver = http, driver

    async def read(self, namespace: str, name: str) -> Claim | None:
        """The claim as it is now, None where nothing is allocated to it; KubeError where it cannot be read, and
        KubeMissingError where it is gone."""
        path = f"/apis/resource.k8s.io/v1/namespaces/{namespace}/resourceclaims/{name}"
        with errors_of(f"GET {path}", RIGHTS):
            return claim(await self._http.get(path, {}, waits=WAITS, max_bytes=MAX_BYTES), self._driver)
