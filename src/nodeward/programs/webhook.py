"""The admission webhook's process: settings in, one server with a certificate that follows its files.

It keeps nothing and needs no privileges; more of it is more replicas. By `webhook.annotate` it is the annotating
webhook too, at paths of its own. At the path for EPC `limits.mode` holds: `observe` decides, tells the pod's author by
a warning, and changes and refuses nothing; `off` does not decide.
"""

import asyncio
import dataclasses
import gc
import logging
import random
from collections.abc import Mapping

from nodeward.core.modes import Mode
from nodeward.features.admission.decide import admit
from nodeward.features.admission.door.doors import Patience, listen
from nodeward.features.admission.door.server import Decide, WebhookServer
from nodeward.features.admission.requests import annotated
from nodeward.features.admission.values import AdmissionRule, Operation, PodAsked, Verdict
from nodeward.features.limits.settings import GivenBy
from nodeward.features.settings import Settings
from nodeward.host.backoff import Backoff
from nodeward.host.clock import Clock
from nodeward.host.heap import keep_freed_memory
from nodeward.host.process import cannot_listen, raise_descriptor_limit
from nodeward.host.supervise import forever
from nodeward.host.tls import ReloadingTls

log = logging.getLogger(__name__)
CHECK_S = 2.0
SPARE = 64
"""Descriptors for what is no connection."""


def decider(settings: Settings) -> Decide:
    """The decision by these settings, as the mode allows it."""
    rule = AdmissionRule(
        settings.limits.resources, settings.webhook.required_plugin, settings.limits.devices is GivenBy.NRI
    )

    def enforced(operation: Operation, pod: PodAsked) -> Verdict:
        return admit(operation, pod, rule)

    def observed(operation: Operation, pod: PodAsked) -> Verdict:
        verdict = admit(operation, pod, rule)
        said = [f"nodeward would refuse this pod: {refusal}" for refusal in verdict.refusals]
        for line in said:
            log.info("observed=%s/%s %s", pod.namespace, pod.name, line)
        return Verdict(warnings=(*said, *verdict.warnings))

    def nothing(_: Operation, __: PodAsked) -> Verdict:
        return Verdict()

    return {Mode.ENFORCE: enforced, Mode.OBSERVE: observed, Mode.OFF: nothing}[settings.limits.mode]


def connections(wanted: int) -> int:
    """The number of connections: as many as wanted, or as the process may have: a newcomer for whom there is no
    descriptor is held up, while one beyond the bound is let in for the oldest stranger."""
    may = raise_descriptor_limit() - SPARE
    if may < wanted:
        log.warning("connections=%d wanted=%d because='no more descriptors are allowed: raise ulimit -n'", may, wanted)
    return max(1, min(wanted, may))


def annotators(settings: Settings, root: str = "") -> Mapping[str, Decide]:
    """The decision at each path of an annotating webhook. `root`: the annotation that the path / is for."""

    def writes(key: str) -> Decide:
        return lambda operation, pod: annotated(operation, pod, key)

    found = {f"/{key}": writes(key) for key in settings.webhook.annotate}
    return found | ({"/": writes(root)} if root else {})


async def run(settings: Settings, clock: Clock, root: str = "") -> None:
    """Serves until cancelled; then what has begun is answered. TlsFilesError or ListenError if it cannot begin. `root`:
    see `annotators`."""
    section = settings.webhook
    tls = ReloadingTls(section.certificate_file, section.key_file)
    await tls.check()
    try:
        listener = listen(section.address, section.port)
    except OSError as error:
        wanted = f"webhook.address {section.address or 'of every interface'!r}, webhook.port {section.port}"
        raise cannot_listen(wanted, error) from error
    patience = Patience(
        request_s=section.request_s, close_s=section.close_s, max_connections=connections(section.max_connections)
    )
    server = WebhookServer(decider(settings), lambda: tls.context, patience=patience, others=annotators(settings, root))
    log.info("serving address=%s port=%d mode=%s", *listener.getsockname()[:2], settings.limits.mode.value)
    keep_freed_memory()
    gc.collect()
    gc.freeze()
    try:
        async with asyncio.TaskGroup() as group:
            group.create_task(server.serve(listener))
            group.create_task(
                forever(
                    "certificate",
                    lambda: tls.watch(clock, CHECK_S),
                    clock,
                    Backoff(0.2, 10.0, random.random),
                    lambda _, __: None,
                )
            )
    finally:
        counted = dataclasses.asdict(server.counts) | dataclasses.asdict(server.doors.counts)
        log.info("webhook ends %s", " ".join(f"{name}={count}" for name, count in counted.items()))
