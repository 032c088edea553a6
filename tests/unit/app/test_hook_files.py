"""What the daemon leaves for the OCI hook: written once, removed with the pod, kept while the API server is away."""

import errno

import pytest

from nodeward.app.node.hook_files import Keeper
from nodeward.doubles.kernel import SimKernel
from nodeward.engine.state.pods import KnownSpec
from nodeward.model.settings import LimitsSettings, Mode
from nodeward.model.workload import ContainerSpec, PodSpec, PodUid
from nodeward.wire import pod_file
from tests.faults import FaultyFiles

FOLDER = "/run/nodeward"
RULE = LimitsSettings()


def node() -> SimKernel:
    kernel = SimKernel({})
    if "run" not in kernel.listdir("/"):
        kernel.mkdir("/run")
    return kernel


def specs(*uids: str, amount: int = 1) -> dict[PodUid, KnownSpec]:
    containers = (ContainerSpec("app", declared={"sgx_epc": amount}),)
    return {PodUid(uid): KnownSpec(PodSpec(PodUid(uid), "ns", uid, containers), 1) for uid in uids}


def left(kernel: SimKernel) -> list[str]:
    return kernel.listdir(f"{FOLDER}/pods")


def test_pods_and_settings_are_left_and_read_back() -> None:
    kernel = node()
    Keeper(kernel, FOLDER).bring(LimitsSettings(mode=Mode.OBSERVE), specs("a", "b", amount=7), complete=True)

    assert left(kernel) == ["a.json", "b.json"]
    assert pod_file.decode_rule(kernel.read(f"{FOLDER}/hook.json", 9999)).mode is Mode.OBSERVE
    found = pod_file.decode_pod(kernel.read(f"{FOLDER}/pods/a.json", 9999))
    assert (found.uid, found.containers) == ("a", (ContainerSpec("app", declared={"sgx_epc": 7}),))


def test_nothing_is_written_twice_and_what_changes_is() -> None:
    counted = FaultyFiles(node())
    keeper = Keeper(counted, FOLDER)
    keeper.bring(RULE, specs("a", "b"), complete=True)
    before = counted.total
    keeper.bring(RULE, specs("a", "b"), complete=True)
    assert counted.total == before

    keeper.bring(RULE, specs("b") | specs("a", amount=2), complete=True)
    assert counted.total == before + 1


def test_a_pods_file_goes_with_the_pod_but_not_while_the_api_server_is_away() -> None:
    kernel = node()
    Keeper(kernel, FOLDER).bring(RULE, specs("a", "b"), complete=True)
    later = Keeper(kernel, FOLDER)
    later.bring(RULE, specs("b"), complete=False)
    assert left(kernel) == ["a.json", "b.json"], "left by an earlier daemon"
    later.bring(RULE, specs("b"), complete=True)

    assert left(kernel) == ["b.json"]


def test_a_static_pods_file_has_the_uid_that_the_runtime_uses() -> None:
    kernel = node()
    known = specs("mirror")[PodUid("mirror")]
    Keeper(kernel, FOLDER).bring(RULE, {PodUid("hash"): known}, complete=True)

    assert pod_file.decode_pod(kernel.read(f"{FOLDER}/pods/hash.json", 9999)).uid == "hash"


@pytest.mark.parametrize("uid", ["../../etc/x", "a/b", "", ".", "a\n", "x" * 200])
def test_a_uid_that_is_no_plain_name_gets_no_file(uid: str) -> None:
    kernel = node()
    Keeper(kernel, FOLDER).bring(RULE, specs(uid, "a"), complete=True)

    assert left(kernel) == ["a.json"]


def test_a_full_disk_is_made_up_for_by_the_next_one() -> None:
    kernel = node()
    for number in range(1, 5):
        with pytest.raises(OSError, match="No space left"):
            Keeper(FaultyFiles(kernel, number, errno.ENOSPC), FOLDER).bring(RULE, specs("a"), complete=True)
        Keeper(kernel, FOLDER).bring(RULE, specs("a"), complete=True)
        assert left(kernel) == ["a.json"]
        kernel.unlink(f"{FOLDER}/pods/a.json")
