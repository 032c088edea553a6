"""A real kubelet 1.37 whose --root-dir is not the usual one: its device plugins stay where they always are, and its
Pods API is below the other folder, until it begins anew without one. So is the state of its CPU manager."""

import json

from tests.peers.daemon import until
from tests.real.test_keys_offered import KEYS, TDX, Offered, offered
from tests.told import tell

GONE = "finding: kubelet has begun anew without its Pods API"


def begins_anew(here: Offered, *, pods_api: bool, **said: str) -> None:
    """Kubelet is killed and comes again with this gate and with what else is said, and has our list."""
    here.pods.kubelet.configure(featureGates={"PodsAPI": pods_api}, **said)
    if "cpuManagerPolicy" in said:
        (here.pods.root / "cpu_manager_state").unlink()  # else kubelet refuses to begin with another policy
    with here.pods.relisted(TDX, (KEYS, KEYS)):
        here.pods.restart()


def told(here: Offered) -> str:
    return next((line for line in here.shown().splitlines() if "finding: kubelet " in line), "")


def other_owners(here: Offered) -> list[tuple[str, str]]:
    """What doctor finds of kubelet's CPU manager, where a policy of ours is to be active."""
    config = str(here.node.nodeward.config)
    pairs = ("--set", "policy.active=static", "--set", "policy.reserved=1")
    told = json.loads(here.node.nodeward.command("doctor", "--config", config, *pairs, "-o", "json").stdout)
    return [(one["severity"], one["where"]) for one in told["findings"] if one["code"] == "cpu-manager"]


def test_a_kubelet_that_has_no_pods_api_any_more_is_known_by_the_other_views() -> None:
    with offered() as here:
        here.runs("vm")
        mine = here.pods.held("vm", TDX)
        assert told(here) == ""

        begins_anew(here, pods_api=False)
        until(lambda: GONE in told(here), "it is known to be gone")
        tell(told(here).strip())
        assert other_owners(here) == []
        assert f"default/vm: promised 1, holds nothing that is known, id {mine[0]}" in here.shown()
        here.is_left_by("vm")
        here.runs("next")

        begins_anew(here, pods_api=True, cpuManagerPolicy="static", reservedSystemCPUs="0")
        until(lambda: told(here) == "", "it tells again")
        assert other_owners(here) == [("error", str(here.pods.root / "cpu_manager_state"))]
        assert f"id {here.pods.held('next', TDX)[0]}" in here.shown()
        here.is_left_by("next")
