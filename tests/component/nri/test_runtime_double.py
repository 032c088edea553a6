"""Given the runtime double on the kernel double, when plugins and values are bad, then it does what containerd does."""

from collections.abc import Callable
from pathlib import Path

import pytest

from nodeward.doubles.kernel import SimKernel
from nodeward.doubles.runtime import CGROUP_ROOT, SimContainer, SimPod, SimRuntime
from nodeward.doubles.runtime_plugins import RuntimeRefusalError
from nodeward.edges.nri.session import NriSettings
from nodeward.model.decision import Adjustment, Final, Reason
from nodeward.model.events import Question
from tests.component.nri.harness import World, joined, story

WEB = SimPod("u-1", "web")


def giving(value: str) -> Callable[[Question], Final]:
    return lambda question: Final(Adjustment({"misc.max": value}), Reason("test"))


def read(kernel: SimKernel, runtime: SimRuntime, container_id: str) -> str:
    return kernel.read(f"{CGROUP_ROOT}{runtime.cgroup(container_id)}/misc.max", 4096).decode()


def test_several_resources_are_written_line_by_line(tmp_path: Path) -> None:
    kernel = SimKernel({"sgx_epc": 1 << 30, "sev": 10})

    async def tale(world: World, settings: NriSettings) -> None:
        world.answer = giving("sgx_epc 4096\nsev 3")
        async with joined(world, settings):
            await world.plugin()
            container = await world.runtime.create_container(await world.runtime.run_pod(WEB), SimContainer("main"))
            await world.runtime.start(container)
            lines = read(kernel, world.runtime, container).splitlines()
            assert {"sgx_epc 4096", "sev 3"} <= set(lines)
            world.answer = giving("sgx_epc 8192\nsev 3")
            await world.runtime.update_container(container)
            assert "sgx_epc 8192" in read(kernel, world.runtime, container)

    story(tmp_path, tale, lambda path: SimRuntime(path, kernel))


def test_with_systemd_a_container_is_a_scope_below_its_pods_slice(tmp_path: Path) -> None:
    kernel = SimKernel({"sgx_epc": 1 << 30})

    async def tale(world: World, settings: NriSettings) -> None:
        world.answer = giving("sgx_epc 4096")
        async with joined(world, settings):
            await world.plugin()
            pod = await world.runtime.run_pod(SimPod("1111-22", "web"))
            container = await world.runtime.create_container(pod, SimContainer("main"))
            await world.runtime.start(container)
            slice_path = "/kubepods.slice/kubepods-pod1111_22.slice"
            assert world.runtime.cgroup(container) == f"{slice_path}/cri-containerd-{container}.scope"
            assert "sgx_epc 4096" in read(kernel, world.runtime, container)
            pause = f"cri-containerd-{pod}.scope"
            assert pause in kernel.listdir(CGROUP_ROOT + slice_path)
            await world.runtime.remove_pod(pod)
            assert "kubepods-pod1111_22.slice" not in kernel.listdir(f"{CGROUP_ROOT}/kubepods.slice")

    story(tmp_path, tale, lambda path: SimRuntime(path, kernel, systemd_cgroups=True))


def test_a_value_the_kernel_refuses_fails_the_start_in_runcs_words(tmp_path: Path) -> None:
    kernel = SimKernel({"sev": 10})

    async def tale(world: World, settings: NriSettings) -> None:
        world.answer = giving("sgx_epc 4096")
        async with joined(world, settings):
            await world.plugin()
            pod = await world.runtime.run_pod(WEB)
            container = await world.runtime.create_container(pod, SimContainer("main"))
            words = 'unable to set unified resource "misc.max": failed to write "sgx_epc 4096": .*invalid argument'
            with pytest.raises(RuntimeRefusalError, match=words):
                await world.runtime.start(container)
            with pytest.raises(FileNotFoundError):
                read(kernel, world.runtime, container)
            await world.runtime.remove_pod(pod)
        assert world.kinds()[-4:] == ["Stopped", "SandboxStopped", "Removed", "SandboxRemoved"]

    story(tmp_path, tale, lambda path: SimRuntime(path, kernel))


def test_an_update_that_is_not_answered_writes_the_old_value_back(tmp_path: Path) -> None:
    kernel = SimKernel({"sgx_epc": 1 << 30})

    async def tale(world: World, settings: NriSettings) -> None:
        world.answer = giving("sgx_epc 4096")
        async with joined(world, settings):
            await world.plugin()
            container = await world.runtime.create_container(await world.runtime.run_pod(WEB), SimContainer("main"))
            await world.runtime.start(container)
        await world.runtime.nri.wait_for_plugins(0)
        kernel.write(f"{CGROUP_ROOT}{world.runtime.cgroup(container)}/misc.max", b"sgx_epc 8192")
        await world.runtime.update_container(container)
        assert "sgx_epc 4096" in read(kernel, world.runtime, container)

    story(tmp_path, tale, lambda path: SimRuntime(path, kernel))
