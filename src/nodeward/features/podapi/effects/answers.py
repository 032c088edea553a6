"""Answers the Pod API's methods from the engine's state, and from providers of sections. Of a pod whose sandbox nobody
told the engine of, such as on a node without NRI, the relay may know it.

Promises: a section whose provider fails or is late says so, and harms no other; what a runtime reports is kept in
memory, bounded, for as long as its sandbox is there. No answer holds what a request held but ids.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Final

from nodeward.core.errors import AnswerError, Failure, NodewardError, RequestError
from nodeward.core.pulls import PullsView, SandboxKey
from nodeward.core.vms import Handler
from nodeward.core.workload import SandboxId
from nodeward.features.podapi import view as show
from nodeward.features.podapi.effects.watch import Watchers
from nodeward.features.podapi.rows import (
    SECTIONS,
    SPEC,
    ComputeSizeRequest,
    ComputeSizeResponse,
    DescribePodRequest,
    ListPodsRequest,
    ListPodsResponse,
    PodDescription,
    ReportSandboxRequest,
    ReportSandboxResponse,
    Section,
    Selector,
)
from nodeward.features.podapi.size_view import computed
from nodeward.features.root import State
from nodeward.features.sandboxes.settings import MOST_CPUS, MOST_MEMORY_MIB, unlimited
from nodeward.features.wiring import Node
from nodeward.host.clock import Clock
from nodeward.neighbours.kata.handlers import read_handlers
from nodeward.neighbours.sysfs import topology

log = logging.getLogger(__name__)
Provider = Callable[[str, str, str, str], Awaitable[Section[object]]]
"""A section of the pod with this UID, namespace, name and sandbox id, which is empty for not known."""
Telling = Callable[[], Awaitable[tuple[PullsView | None, str]]]
"""What the relay has told of sandboxes, else why not."""
MOST_WAIT_MS: Final = 5000
MOST_TEXT: Final = 512
"""Characters of an id or a name in a request, which are at most 253 where Kubernetes makes them."""
MOST_ITEMS: Final = 4096
LATE_S: Final = 1.0
SLOW: Final = {
    "volumes": 4.5, "network": 4.5, "images": 4.0, "spec": 4.0, "devices": 3.0, "numa": 3.0, "pulls": 2.5
}  # fmt: skip
"""These read a pod of up to 3 MiB at the API server or files of the host, or ask kubelet or the relay. Each has a bound
of its own, which is less."""
MOST_REPORTS: Final = 512
EARLY_NS: Final = 60 * 10**9
"""So long a report is kept whose sandbox the runtime has not told of."""
MACHINE_NS: Final = 10 * 10**9
AGAIN_S: Final = 1.0
"""How often the relay is asked again while somebody waits."""
_described: Callable[..., PodDescription] = PodDescription


class Reports:
    """What runtimes have reported of their sandboxes."""

    def __init__(self, state: Callable[[], State], clock: Clock) -> None:
        self._state, self._clock = state, clock
        self._kept: dict[str, tuple[ReportSandboxRequest, int]] = {}
        self._seen = set[str]()

    def put(self, report: ReportSandboxRequest) -> bool:
        """Keeps it instead of an earlier one; whether the sandbox is known."""
        self._forget()
        if report.sandbox not in self._kept and len(self._kept) >= MOST_REPORTS:
            raise AnswerError(Failure.RESOURCE_EXHAUSTED, f"reports of {MOST_REPORTS} sandboxes are kept: the most")
        self._kept[report.sandbox] = report, self._clock.now_ns()
        self._forget()
        return report.sandbox in self._seen

    def of(self, sandbox: str) -> tuple[ReportSandboxRequest | None, int]:
        """What was reported of it last, and when (CLOCK_BOOTTIME)."""
        self._forget()
        return self._kept.get(sandbox, (None, 0))

    def _forget(self) -> None:
        """Drops reports of sandboxes that have ended."""
        there, late_ns = self._state().pods.sandboxes, self._clock.now_ns() - EARLY_NS
        self._seen = {one for one in self._kept if SandboxId(one) in there} | (self._seen & self._kept.keys())
        for one in [*self._kept]:
            ended = one in self._seen or self._kept[one][1] < late_ns
            if SandboxId(one) not in there and ended:
                del self._kept[one]
                self._seen.discard(one)


class Answers:
    """The methods. Belongs to the loop's thread."""

    def __init__(self, node: Node, watchers: Watchers, providers: Mapping[str, Provider], telling: Telling) -> None:
        self._node, self._core, self._clock, self._watchers = node, node.core, node.clock, watchers
        self._providers, self._telling = providers, telling
        self._last: tuple[SandboxKey, ...] = ()
        """What the relay told last, for reports: they outlive a relay's restart."""
        self._reports = Reports(lambda: show.with_told(node.core.state, self._last), node.clock)
        self._machine: asyncio.Future[tuple[Mapping[str, Handler], int, int]] | None = None
        self._machine_ns = 0

    async def list_pods(self, _: ListPodsRequest) -> ListPodsResponse:
        """Every pod that is known."""
        found = show.pods(self._core.state)
        if all(one.sandbox for one in found):
            return ListPodsResponse(found)
        told = (await self._told())[0]
        return ListPodsResponse(show.pods(show.with_told(self._core.state, told)))

    async def describe_pod(self, asked: DescribePodRequest) -> PodDescription:
        """The sections of one pod. Waits for the pod, its spec and its sandbox where that is wanted."""
        if not 0 <= asked.wait_ms <= MOST_WAIT_MS:
            raise RequestError(f"wait_ms: is not between 0 and {MOST_WAIT_MS}")
        if any(one not in SECTIONS for one in asked.fields):
            raise RequestError(f"fields: has one that is no section; there are {', '.join(SECTIONS)}")
        one, no_id = await self._subject(asked.selector, asked.wait_ms / 1000)
        named = [name for name in SECTIONS if (name in asked.fields if asked.fields else name != SPEC)]
        around, asking = self._around(one.sandbox_id, no_id), [name for name in named if name in self._providers]
        sections = {name: show.MADE[name](self._core.state, one, around) for name in named if name not in asking}
        told = (self._providers[name](one.uid, one.namespace, one.name, one.sandbox_id) for name in asking)
        found = await asyncio.gather(*map(provided, asking, told))
        return _described(**sections, **dict(zip(asking, found, strict=True)))

    async def compute_size(self, asked: ComputeSizeRequest) -> ComputeSizeResponse:
        """How large the pod's VM is to be, by the settings of `sizing` or by others."""
        if asked.unlimited and unlimited(asked.unlimited) is None:
            raise RequestError(
                "unlimited: is none of request, all, a number of CPUs, or a part of the machine such as 50%"
            )
        for name, value, most in (
            ("keep_cpus", asked.keep_cpus, MOST_CPUS),
            ("keep_memory_mib", asked.keep_memory_mib, MOST_MEMORY_MIB),
        ):
            if value is not None and not 0 <= value <= most:
                raise RequestError(f"{name}: is not between 0 and {most}")
        _check_text("handler", asked.handler)
        one, _ = await self._subject(asked.selector, 0.0)
        handlers, cpus, memory = await self._read_machine()
        return computed(asked, one, handlers, self._node.settings.sizing, cpus, memory, self._node.pods.allocatable)

    async def report_sandbox(self, asked: ReportSandboxRequest) -> ReportSandboxResponse:
        """Keeps what a runtime says of its sandbox."""
        if not asked.sandbox:
            raise RequestError("sandbox: is empty, and has to be the sandbox's id")
        for name, texts in (
            ("sandbox", (asked.sandbox,)),
            ("runtime", (asked.runtime,)),
            ("cgroups", asked.cgroups),
        ):
            for text in texts:
                _check_text(name, text)
        if len(asked.vcpu_tids) > MOST_ITEMS or len(asked.cgroups) > 64:
            raise RequestError(f"vcpu_tids, cgroups: have more than {MOST_ITEMS} and 64 items")
        if min(asked.vmm_pid, asked.vcpus, asked.memory, *asked.vcpu_tids, 0) < 0:
            raise RequestError("vmm_pid, vcpus, memory, vcpu_tids: none may be below 0")
        if max(asked.vmm_pid, asked.vcpus, asked.memory, *asked.vcpu_tids, 0) >= 1 << 63:
            raise RequestError("vmm_pid, vcpus, memory, vcpu_tids: none may have more than 63 bits")
        if SandboxId(asked.sandbox) not in self._core.state.pods.sandboxes:
            await self._told()
        return ReportSandboxResponse(self._reports.put(asked))

    async def _subject(self, asked: Selector, wait_s: float) -> tuple[show.Subject, str]:
        """The pod, and why the id of its sandbox is not known where that is so."""
        for name in ("uid", "sandbox", "namespace", "name"):
            _check_text(f"selector.{name}", getattr(asked, name))
        if not (asked.uid or asked.sandbox or (asked.namespace and asked.name)):
            raise RequestError("selector: names no pod; give uid, sandbox, or namespace and name")

        def is_whole(one: show.Subject | None) -> bool:
            return one is not None and one.known is not None and (one.sandbox is not None or not asked.sandbox)

        told: tuple[SandboxKey, ...] = ()
        why = ""

        def find() -> show.Subject | None:
            return show.subject(self._core.state, asked, told)

        now = asyncio.get_running_loop().time
        until = now() + wait_s
        while True:
            found = show.subject(self._core.state, asked)
            if found is None or not found.sandbox_id:
                told, why = await self._told()
                found = find()
            left_s = until - now()
            if is_whole(found) or left_s <= 0:
                break
            await self._watchers.until(find, is_whole, min(left_s, AGAIN_S))
        if found is None:
            raise AnswerError(
                Failure.NOT_FOUND, "this node knows no such pod; ListPods (`nodeward pod --list`) names those it knows"
            )
        return found, why

    async def _told(self) -> tuple[tuple[SandboxKey, ...], str]:
        """The sandboxes by the relay, oldest first, and why one that is not among them is not known."""
        view, why = None, f"the relay did not answer within {LATE_S:g} s"
        with suppress(TimeoutError):
            async with asyncio.timeout(LATE_S):
                view, why = await self._telling()
        if view is None:
            return (), f"the sandbox's id is not known: {why}"
        self._last = (
            view.sandboxes if view.listed else tuple(dict.fromkeys((*self._last, *view.sandboxes)))[-MOST_ITEMS:]
        )
        return view.sandboxes, "the sandbox's id is not known: the relay has seen none of this pod"

    def _around(self, sandbox: str, no_id: str) -> show.Around:
        report = self._reports.of(sandbox)
        return show.Around(self._clock.wall_ns(), self._clock.now_ns(), self._node.pods.heard_ns, *report, no_id)

    async def _read_machine(self) -> tuple[Mapping[str, Handler], int, int]:
        """Handlers that start VMs, CPUs and bytes of memory; read at most once in `MACHINE_NS`, beside the loop."""
        now_ns = self._clock.now_ns()
        if self._machine is None or (self._machine.done() and now_ns - self._machine_ns > MACHINE_NS):
            self._machine_ns = now_ns
            self._machine = asyncio.get_running_loop().run_in_executor(None, self._from_files)
        return await asyncio.shield(self._machine)

    def _from_files(self) -> tuple[Mapping[str, Handler], int, int]:
        files, settings = self._node.files, self._node.settings
        machine = topology.read(files)
        handlers = {one.name: one for one in read_handlers(files, settings.sandboxes.profiles)}
        return handlers, machine.online.bit_count(), sum(node.bytes for node in machine.memory)


async def provided(name: str, told: Awaitable[Section[object]]) -> Section[object]:
    """The section of this name from its provider, or why it is missing."""
    within_s = SLOW.get(name, LATE_S)
    try:
        async with asyncio.timeout(within_s):
            return await told
    except TimeoutError:
        return Section(None, "nodeward", False, f"not told within {within_s:g} s")
    except NodewardError as error:
        return Section(None, "nodeward", False, str(error))
    except Exception as error:
        log.exception("podapi section=%s failed", name)
        return Section(None, "nodeward", False, f"{type(error).__name__}: a fault of nodeward's, see its log")


def _check_text(name: str, text: str) -> None:
    if len(text) > MOST_TEXT:
        raise RequestError(f"{name}: has more than {MOST_TEXT} characters")
