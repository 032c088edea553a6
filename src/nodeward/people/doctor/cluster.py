"""Asks the API server what doctor judges: whether it answers, its clock, and who else changes pods.

Only reads: one page of one pod of this node, seven lists that a node's own rights may well not allow, the ConfigMaps
that our policies' bindings name, and what Node Feature Discovery has for this node. Whether Events may be made is
asked, not tried.
"""

import asyncio
from collections.abc import Callable, Mapping
from email.utils import parsedate_to_datetime
from typing import TypeVar
from urllib.parse import quote

from nodeward.core.errors import WireError
from nodeward.core.finding import Access, ParameterRef, Unlisted
from nodeward.core.modes import Mode
from nodeward.features.keys.effects import nfd_object
from nodeward.features.settings import Settings
from nodeward.features.wiring import name_of_node
from nodeward.host.clock import Clock
from nodeward.host.executor import DaemonExecutor
from nodeward.neighbours.kubernetes import auth, cluster
from nodeward.neighbours.kubernetes.client import PodsClient
from nodeward.neighbours.kubernetes.cluster import MAX_ACCESS_BYTES, REVIEWS, is_allowed, question
from nodeward.neighbours.kubernetes.errors import KubeConfigError, KubeDeniedError, KubeError
from nodeward.neighbours.kubernetes.resource_slice import slice_name
from nodeward.neighbours.kubernetes.settings import KubeSettings
from nodeward.neighbours.nfd.client import NfdClient
from nodeward.neighbours.sockets.kube_http import KubeCredentialsError, KubeHttp, KubeHttpError, KubeRefusedError, Waits
from nodeward.people.doctor.facts import ApiFacts

WAITS = Waits(connect_s=2.0, read_s=3.0, total_s=3.0)
_DENIED = (401, 403)
_WEBHOOKS = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"
_DAEMON_SETS = "/apis/apps/v1/daemonsets"
_BINDINGS = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings"
_CLASSES = "/apis/node.k8s.io/v1/runtimeclasses"
_DEVICE_CLASSES = "/apis/resource.k8s.io/v1/deviceclasses"
_SLICES = "/apis/resource.k8s.io/v1/resourceslices"
_LATE_S = 120
"""So long after a pod was to have ended something keeps it."""
T = TypeVar("T")


def api(settings: Settings, environ: Mapping[str, str], clock: Clock) -> ApiFacts:
    """How it answers; never raises for what the API server or the settings are to blame for."""
    if not settings.kube.enabled:
        return ApiFacts(Access.OFF)

    async def asked() -> ApiFacts:
        asyncio.get_running_loop().set_default_executor(DaemonExecutor())  # a look-up that hangs holds up no exit
        return await _ask(settings, environ, clock)

    return asyncio.run(asked())


async def _ask(settings: Settings, environ: Mapping[str, str], clock: Clock) -> ApiFacts:
    try:
        chosen = KubeSettings(
            endpoint=auth.endpoint_of(settings.kube, environ),
            node_name=name_of_node(settings, environ),
            page_limit=1,
            request=WAITS,
        )
    except KubeConfigError as error:
        return ApiFacts(Access.CONFIG, "kube", str(error))
    client = PodsClient(chosen, clock)
    where = chosen.endpoint.base_url
    try:
        await client.list_page()
    except KubeError as error:
        return ApiFacts(_access(error), where, str(error), _behind_s(client.http, clock))
    else:
        behind_s = _behind_s(client.http, clock)
        webhooks, daemon_sets, (policies, missing), classes, devices = await asyncio.gather(
            _listed(client.http, "webhooks", _WEBHOOKS, cluster.webhooks),
            _listed(client.http, "DaemonSets", _DAEMON_SETS, cluster.daemon_set_names),
            _policies(client.http),
            _listed(client.http, "RuntimeClasses", _CLASSES, cluster.runtime_classes),
            _listed(client.http, "DeviceClasses", _DEVICE_CLASSES, cluster.device_classes),
        )
        twins, ending = await _claims(client.http, settings, environ, clock.wall_ns() / 1e9 + (behind_s or 0))
        ours = await _our_object(client.http, settings, environ)
        on_node, left = await _numbers(client.http, settings, environ)
        no_events = await _refused_events(client.http) if settings.kube.events else ()
        return ApiFacts(
            access=Access.OK,
            where=where,
            behind_s=behind_s,
            webhooks=None if isinstance(webhooks, Unlisted) else webhooks,
            daemon_sets=None if isinstance(daemon_sets, Unlisted) else daemon_sets,
            no_parameters=() if isinstance(missing, Unlisted) else missing,
            unlisted=tuple(one for one in (webhooks, daemon_sets, missing) if isinstance(one, Unlisted)),
            our_object=ours,
            on_node=on_node,
            left_by_nfd=left,
            no_events=no_events,
            classes=classes,
            policies=policies,
            device_classes=None if isinstance(devices, Unlisted) else devices,
            twin_slices=twins,
            ending=ending,
        )
    finally:
        await client.aclose()


def _access(error: KubeError) -> Access:
    if isinstance(error, KubeDeniedError):
        return Access.DENIED
    if isinstance(error.__cause__, KubeCredentialsError):
        return Access.CONFIG
    return Access.CERTIFICATE if "certificate" in str(error).lower() else Access.UNREACHABLE


def _behind_s(http: KubeHttp, clock: Clock) -> float | None:
    """The server's clock minus ours; None where it did not tell."""
    try:
        return parsedate_to_datetime(http.server_date).timestamp() - clock.wall_ns() / 1e9
    except (ValueError, TypeError, OverflowError):
        return None


async def _listed(
    http: KubeHttp, what: str, path: str, read: Callable[[bytes], tuple[T, ...]], fields: str = ""
) -> tuple[T, ...] | Unlisted:
    query = {"fieldSelector": fields} if fields else {}
    try:
        return read(await http.get(path, query, waits=WAITS, max_bytes=cluster.MAX_BYTES))
    except KubeRefusedError as error:
        if error.status == 404:
            return ()  # the API server knows no such kind, so there is none
        return Unlisted(what, str(error), error.status in _DENIED)
    except (KubeHttpError, WireError) as error:
        return Unlisted(what, str(error), denied=False)


async def _policies(http: KubeHttp) -> tuple[tuple[str, ...] | None, tuple[ParameterRef, ...] | Unlisted]:
    """The policies of ours that are bound, and the ConfigMaps that are not there though their bindings name them; each
    is asked for once."""
    listed = await _listed(http, "policies' bindings", _BINDINGS, lambda body: (_bound(body),))
    if isinstance(listed, Unlisted):
        return None, listed
    policies, bound = listed[0] if listed else ((), ())
    absent = list[ParameterRef]()
    for namespace, name in dict.fromkeys((one.namespace, one.name) for one in bound):
        path = f"/api/v1/namespaces/{quote(namespace, safe='')}/configmaps/{quote(name, safe='')}"
        there = await _listed(http, f"the ConfigMap {namespace}/{name}", path, lambda _: (True,))
        if isinstance(there, Unlisted):
            return policies, there
        if not there:
            absent += [one for one in bound if (one.namespace, one.name) == (namespace, name)]
    return policies, tuple(absent)


def _bound(body: bytes) -> tuple[tuple[str, ...], tuple[ParameterRef, ...]]:
    return cluster.bound_policies(body), cluster.parameters(body)


async def _claims(
    http: KubeHttp, settings: Settings, environ: Mapping[str, str], now_s: float
) -> tuple[tuple[tuple[str, str], ...], tuple[str, ...]]:
    """Slices of our drivers on this node that are none of ours, and pods with claims that do not end."""
    node, sections = name_of_node(settings, environ), (settings.keys, settings.limits, settings.cpus)
    drivers = [one.dra.driver for one in sections]
    here = f"spec.nodeName={node}"
    slices = await _listed(http, "ResourceSlices", _SLICES, cluster.slices, here)
    ending = await _listed(http, "pods", "/api/v1/pods", cluster.ending_with_claims, here)
    found = () if isinstance(slices, Unlisted) else slices
    late = () if isinstance(ending, Unlisted) else ending
    return (
        tuple((driver, name) for driver, name in found if driver in drivers and name != slice_name(driver, node)),
        tuple(pod for pod, at_ns in late if at_ns and now_s - at_ns / 1e9 > _LATE_S),
    )


async def _refused_events(http: KubeHttp) -> tuple[str, ...] | None:
    """What neighbours.kubernetes.events does and we may not."""
    refused = []
    for verb in ("create", "patch"):
        asked = question(verb, "events.k8s.io", "events")
        try:
            said = await http.ask(REVIEWS, asked, waits=WAITS, max_bytes=MAX_ACCESS_BYTES)
            if not is_allowed(said):
                refused.append(verb)
        except (KubeHttpError, WireError):
            return None
    return tuple(refused)


async def _our_object(http: KubeHttp, settings: Settings, environ: Mapping[str, str]) -> str:
    """Our NodeFeature object for this node; empty where there is none, or where it cannot be looked for."""
    place = nfd_object.place(settings, environ)
    try:
        found = await NfdClient(http, place, WAITS).named(place.name)
    except (KubeHttpError, WireError):
        return ""
    return f"{found.namespace}/{found.name}" if found is not None and found.ours else ""


async def _numbers(
    http: KubeHttp, settings: Settings, environ: Mapping[str, str]
) -> tuple[Mapping[str, int] | None, tuple[str, ...]]:
    """What the node has of keys by other names than those that we publish, and of which of them NFD left it there."""
    rows = settings.keys.kinds.values()
    published = {row.publish: None for row in rows}
    names = tuple(name for row in rows for name in row.resources if name not in published)
    if settings.keys.mode is Mode.OFF or not names:
        return None, ()
    try:
        return await NfdClient(http, nfd_object.place(settings, environ), WAITS).numbers(names)
    except (KubeHttpError, WireError):
        return None, ()
