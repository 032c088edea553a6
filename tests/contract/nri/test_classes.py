"""What containerd makes of the classes in an answer; on the newest one, whose NRI has a field for each."""

import asyncio
import json
import tempfile
from pathlib import Path

import pytest

from nodeward.core.decision import Adjustment, Final, IoClass, Scheduler, SchedulingClass
from nodeward.core.refusal import Reason
from nodeward_sim.doubles.runtime import SimContainer, SimPod
from nodeward_sim.doubles.runtime_plugins import RuntimeRefusalError
from tests.contract.nri.containerd_side import containerd_side
from tests.patience import scaled
from tests.peers.plugin import nodeward_plugin

ROUND_ROBIN = SchedulingClass("a", Scheduler.RR, priority=5, io_class=IoClass.BE, io_priority=7)


async def test_containerd_puts_classes_into_the_spec_and_refuses_one_of_block_io_that_it_does_not_know() -> None:
    answer = Adjustment(rdt_class="gold", scheduling=ROUND_ROBIN)
    with tempfile.TemporaryDirectory(prefix="nri") as folder:
        async with (
            asyncio.timeout(scaled(60.0)),
            containerd_side("0.12", Path(folder)) as runtime,
            nodeward_plugin(runtime.socket, lambda _: Final(answer, Reason("test"))) as ports,
        ):
            await runtime.connected("10-nodeward")
            pod = await runtime.run_pod(SimPod("u-1", "web"))
            made = await runtime.create_container(pod, SimContainer("app"))
            spec = json.loads(runtime.daemon.ctr("containers", "info", made).stdout)["Spec"]
            assert spec["linux"]["intelRdt"] == {"closID": "gold"}
            assert spec["process"]["scheduler"] == {"policy": "SCHED_RR", "priority": 5}
            assert spec["process"]["ioPriority"] == {"class": "IOPRIO_CLASS_BE", "priority": 7}
            ports.decide = lambda _: Final(Adjustment(blockio_class="slow"), Reason("test"))
            with pytest.raises(RuntimeRefusalError, match="slow"):
                await runtime.create_container(pod, SimContainer("other"))
