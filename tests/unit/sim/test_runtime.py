"""The runtime double where calls overlap, as a kubelet's and a garbage collector's do."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from nodeward.doubles.cpus import Plan
from nodeward.doubles.kernel import CGROUP_MOUNT, SimKernel
from nodeward.doubles.runtime import SimContainer, SimCpu, SimPod, SimRuntime
from nodeward.doubles.runtime_plugins import RuntimeRefusalError

Made = tuple[SimRuntime, str, str]


async def made(folder: Path) -> Made:
    """A pod with a container, neither stopped."""
    runtime = SimRuntime(folder / "nri")
    pod_id = await runtime.run_pod(SimPod("u", "web"))
    return runtime, pod_id, await runtime.create_container(pod_id, SimContainer("app"))


@pytest.mark.parametrize("second", ["stop", "remove_container", "stop_pod", "remove_pod"])
@pytest.mark.parametrize("first", ["remove_container", "remove_pod"])
def test_who_comes_while_another_removes_finds_it_done(first: str, second: str, tmp_path: Path) -> None:
    """Both have looked before either began, as CRI's calls do."""

    async def story() -> SimRuntime:
        runtime, pod_id, container_id = await made(tmp_path)
        calls: dict[str, Callable[[], Awaitable[None]]] = {
            "stop": lambda: runtime.stop(container_id),
            "remove_container": lambda: runtime.remove_container(container_id),
            "stop_pod": lambda: runtime.stop_pod(pod_id),
            "remove_pod": lambda: runtime.remove_pod(pod_id),
        }
        await asyncio.gather(calls[first](), calls[second]())
        return runtime

    runtime = asyncio.run(story())
    assert runtime.containers() == []
    assert len(runtime.pods()) == ("remove_pod" not in (first, second))


def test_a_container_for_a_pod_or_a_start_of_one_that_was_removed_meanwhile_is_refused(tmp_path: Path) -> None:
    async def story() -> list[object]:
        runtime, pod_id, container_id = await made(tmp_path)
        removed = runtime.remove_pod(pod_id)
        late = (runtime.create_container(pod_id, SimContainer("late")), runtime.start(container_id))
        return list(await asyncio.gather(removed, *late, return_exceptions=True))

    done, *refused = asyncio.run(story())
    assert done is None
    assert [type(one) for one in refused] == [RuntimeRefusalError, RuntimeRefusalError]
    assert all("not found" in str(one) for one in refused)


def test_the_record_of_cpus_is_in_the_cgroup_before_the_program_begins_and_an_update_changes_what_it_says(
    tmp_path: Path,
) -> None:
    kernel, seen = SimKernel({}, machine=Plan()), list[str]()

    async def story() -> tuple[str, str]:
        runtime = SimRuntime(tmp_path / "nri", kernel)
        wanted = SimContainer("app", cpu=SimCpu(2048, 200_000, 100_000))
        container_id = await runtime.create_container(await runtime.run_pod(SimPod("u", "web")), wanted)
        cpus = f"{CGROUP_MOUNT}{runtime.cgroup(container_id)}/cpuset.cpus"
        runtime.on_program = lambda _: seen.append(kernel.read(cpus, 99).decode())
        (message,) = runtime.containers()
        message.linux.resources.cpu.cpus = "2-3"
        await runtime.start(container_id)
        kernel.write(cpus, b"0-31")
        await runtime.update_container(container_id, cpu=SimCpu(1024, 100_000, 100_000))
        cpu = message.linux.resources.cpu
        return kernel.read(cpus, 99).decode(), f"{cpu.shares.value} {cpu.quota.value} {cpu.period.value} {cpu.cpus}"

    assert asyncio.run(story()) == ("2-3\n", "1024 100000 100000 2-3")
    assert seen == ["2-3\n"]


def test_a_containers_cgroup_has_cpusets_as_kubelet_hands_them_down(tmp_path: Path) -> None:
    kernel = SimKernel({}, machine=Plan())

    async def story() -> str:
        runtime = SimRuntime(tmp_path / "nri", kernel)
        container_id = await runtime.create_container(await runtime.run_pod(SimPod("u", "web")), SimContainer("app"))
        await runtime.start(container_id)
        return runtime.cgroup(container_id)

    assert kernel.read(f"{CGROUP_MOUNT}{asyncio.run(story())}/cpuset.cpus.effective", 99) == b"0-31\n"
