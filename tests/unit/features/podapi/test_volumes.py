"""Who mounts a volume: the rules one by one, leases, and that no two sandboxes ever have the same one."""

import re
from dataclasses import replace

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from nodeward.core.workload import PodUid, SandboxId
from nodeward.features.podapi import volumes
from nodeward.features.podapi.rows import (
    GUEST,
    HOST,
    ConfirmVolumeRequest,
    OfferedVolume,
    SpecVolume,
    VolumeMount,
    VolumeOffer,
)
from nodeward.features.podapi.volumes import (
    LEASE_S,
    MAKING_S,
    MOST_CLAIMS,
    Claims,
    Host,
    PodVolumes,
    Standing,
    VolumeHold,
)

SECOND = 1_000_000_000
DATA = SpecVolume("data", "persistentVolumeClaim", "disk", mounts=(VolumeMount("app"),))
ASKED = OfferedVolume("data", "/v/data", ("block",), ("ext4",))
NOBODY = Standing(())


def pod(*rows: SpecVolume, uid: str = "u1") -> PodVolumes:
    return PodVolumes(uid, "shop", f"pod-{uid}", rows or (DATA,))


def offer(
    claims: Claims, of: PodVolumes, sandbox: str = "s1", asked: OfferedVolume = ASKED, host: Host | None = None,
    standing: Standing = NOBODY, now_s: int = 1,
) -> tuple[Claims, VolumeOffer]:  # fmt: skip
    return volumes.offered(claims, of, sandbox, asked, host or Host(), standing, now_s * SECOND)


def confirm(claims: Claims, of: PodVolumes, sandbox: str = "s1", host: Host | None = None) -> tuple[Claims, str, str]:
    claims, said = volumes.confirmed(claims, of, ConfirmVolumeRequest(of.uid, sandbox, "data"), host or Host(), SECOND)
    return claims, said.owner, said.why


def a(kind: str, **more: str) -> SpecVolume:
    return SpecVolume("data", kind, mounts=DATA.mounts, **more)


def mounted(**how: bool) -> SpecVolume:
    return replace(DATA, mounts=(VolumeMount("app", read_only=True), VolumeMount("side", **how)))


HOSTS = {
    "not in the spec": (SpecVolume("other", "emptyDir"), ASKED, Host(), "no such volume"),
    **{
        kind: (a(kind), ASKED, Host(), "kubelet writes it")
        for kind in ("secret", "configMap", "projected", "downwardAPI")
    },
    "hostPath": (a("hostPath"), ASKED, Host(), "folder of the host"),
    "nfs, in the spec": (a("nfs"), ASKED, Host(), "asks nobody"),
    "a kind of a later release": (a("newKind"), ASKED, Host(), "newKind: .* asks nobody"),
    "tmpfs": (a("emptyDir", medium="Memory"), ASKED, Host(), "medium Memory: .* memory limit"),
    "a claim without a name": (a("persistentVolumeClaim"), ASKED, Host(), "is not known"),
    "mounted nowhere": (replace(DATA, mounts=()), ASKED, Host(), "no container mounts it"),
    "subPath": (mounted(sub_path=True), ASKED, Host(), "container side .*subPath"),
    "raw": (mounted(raw=True), ASKED, Host(), "raw device"),
    "propagation": (mounted(shared=True), ASKED, Host(), "mountPropagation"),
    "no path": (DATA, replace(ASKED, path=""), Host(), "no path"),
    "virtiofs only": (DATA, replace(ASKED, capabilities=("virtiofs",)), Host(), "neither block nor nfs"),
    "two pods": (DATA, ASKED, Host(users=("shop/b",)), "pod shop/b .*same claim"),
    "unknown": (DATA, ASKED, Host(unknown="cannot be read"), "cannot be read"),
    "mounted on the host": (DATA, ASKED, Host(mounted=True), "mounted on the host"),
    "recorded by another": (DATA, ASKED, Host(recorded="s9"), "sandbox s9 has recorded"),
    "another file system": (DATA, ASKED, Host(fs_type="xfs"), "is xfs"),
}


@pytest.mark.parametrize("case", HOSTS)
def test_the_host_stays_the_owner(case: str) -> None:
    row, asked, host, why = HOSTS[case]
    claims, said = offer({}, pod(row), asked=asked, host=host)

    assert (claims, said.owner) == ({}, HOST)
    assert re.search(why, said.why)


@pytest.mark.parametrize(
    "row", [DATA, a("csi"), a("emptyDir"), a("ephemeral", claim_name="pod-u1-data"), mounted(read_only=True)]
)
def test_a_guest_is_offered_what_is_its_pods_alone(row: SpecVolume) -> None:
    claims, said = offer({}, pod(row), host=Host(fs_type="ext4", recorded="s1"))

    assert (said.owner, said.lease_s, said.firm, len(claims)) == (GUEST, LEASE_S, False, 1)
    assert offer({}, pod(row), asked=replace(ASKED, fs=()))[1].owner == GUEST
    said = offer({}, pod(DATA, replace(DATA, name="again")))[1]
    assert (said.owner, said.why) == (HOST, "volume again of this pod is the same claim disk")


def test_a_lease_becomes_firm_in_time_or_falls_back_to_the_host() -> None:
    claims, _ = offer({}, pod())
    early = volumes.kept(claims, NOBODY, (LEASE_S + 1) * SECOND - 1)
    late = volumes.kept(claims, NOBODY, (LEASE_S + 1) * SECOND)
    firm, owner, _ = confirm(early, pod())

    assert [one.lease_s for one in volumes.listed(early, "/v/data", "", LEASE_S * SECOND)] == [1]
    assert owner == GUEST
    assert volumes.kept(firm, NOBODY, 10**18) == firm
    assert offer(firm, pod())[1] == VolumeOffer("data", GUEST, "this sandbox has confirmed it", firm=True)
    after, owner, why = confirm(claims, pod(), host=Host(users=("shop/b",)))
    assert (after, owner, why) == ({}, HOST, "since the offer: pod shop/b on this node uses the same claim")
    assert late == {}
    assert confirm(late, pod())[1:] == (HOST, "no lease of this sandbox, or it ran out: offer it again")


U1 = (PodUid("u1"),)
BY_CGROUP = Standing((), listed=True, pods=(), by_cgroup=U1)
ANOTHER = Standing(("s2",), listed=True, sandbox_of={PodUid("u1"): SandboxId("s2")})
ENDS = {
    "its sandbox ended": (Standing((), ended=("s1",)), False, False),
    "its sandbox lives": (Standing(("s1",), ended=("s1",), listed=True, pods=()), True, True),
    "its sandbox was never told of": (Standing((), listed=True, pods=U1), True, False),
    "its pod is gone": (Standing((), listed=True, pods=()), False, False),
    "its pod is gone, and the runtime is away": (Standing((), pods=()), True, True),
    "its pod is gone, and only its cgroup is known": (BY_CGROUP, True, True),
    "its pod is gone, and nobody tells of sandboxes": (Standing((), alone=True, pods=()), False, True),
    "its pod is there, and nobody tells of sandboxes": (Standing((), alone=True, pods=U1), True, True),
    "nothing is known": (Standing(()), True, True),
    "its pod has another sandbox": (ANOTHER, False, False),
}
"""What is known; and whether a claim stays whose sandbox was never seen, and one whose sandbox was."""


@pytest.mark.parametrize("case", ENDS)
def test_a_claim_ends_with_its_sandbox(case: str) -> None:
    standing, stays, stays_if_seen = ENDS[case]
    firm, _, _ = confirm(offer({}, pod())[0], pod())
    seen = volumes.kept(firm, Standing(("s1",)), SECOND)
    late = (MAKING_S + 1) * SECOND

    assert bool(volumes.kept(firm, standing, late)) == stays
    if not standing.ended and not standing.alone:
        assert volumes.kept(firm, standing, MAKING_S * SECOND) == firm, "its sandbox may be being made"
    assert bool(volumes.kept(seen, standing, late)) == stays_if_seen


def test_who_comes_second_is_told_who_has_it_and_a_pods_next_sandbox_gets_what_its_earlier_one_was_offered() -> None:
    lease, _ = offer({}, pod())
    firm, _, _ = confirm(lease, pod())

    for of in (pod(), pod(uid="u2")):
        said = offer(firm, of, "s2", replace(ASKED, path="/elsewhere"))[1]
        assert (said.held_by, said.why) == ("s1", "sandbox s1 of pod shop/pod-u1 has it")
    said = offer(lease, pod(), "s2", standing=Standing(("s1",)), now_s=11)[1]
    assert said.why == "sandbox s1 of pod shop/pod-u1 is offered it for 20 s more"
    claims, said = offer(lease, pod(), "s2")
    assert (said.owner, [one.sandbox for one in claims.values()]) == (GUEST, ["s2"])
    twice = pod(DATA, replace(DATA, name="x", claim_name="y"))
    assert offer(lease, twice, "s1", OfferedVolume("x", ASKED.path, ("block",)))[1].owner == HOST, "by the same path"


def test_a_node_has_so_many_claims_and_no_more() -> None:
    full = {f"k{number}": VolumeHold("v", f"/{number}", "n", "p", "u", "s", "", 0) for number in range(MOST_CLAIMS)}
    claims, said = offer(full, pod())

    assert (claims, said.owner) == (full, HOST)
    assert "which is the most" in said.why


class Node(RuleBasedStateMachine):
    """Sandboxes of three pods, two of which name the same claim, ask in any order, and time goes by."""

    def __init__(self) -> None:
        super().__init__()
        self.claims: Claims = {}
        self.now = SECOND
        self.standing: list[str] = []
        self.guests: dict[str, str] = {}
        """Who has been told that it mounts a volume for good, by claim."""

    def _pod(self, number: int) -> PodVolumes:
        return pod(replace(DATA, claim_name="disk" if number < 2 else "own"), uid=f"u{number}")

    def _kept(self) -> None:
        self.claims = volumes.kept(self.claims, Standing(self.standing, listed=True), self.now)

    @rule(number=st.integers(0, 2), turn=st.integers(0, 1), path=st.sampled_from(["/a", "/b"]))
    def asks(self, number: int, turn: int, path: str) -> None:
        self._kept()
        asked, standing = replace(ASKED, path=path), Standing(self.standing)
        self.claims, said = volumes.offered(
            self.claims, self._pod(number), f"s{number}{turn}", asked, Host(), standing, self.now
        )
        other = self.guests.get("disk" if number < 2 else "own")
        if other in self.standing and other != f"s{number}{turn}":
            assert said.owner == HOST

    @rule(number=st.integers(0, 2), turn=st.integers(0, 1))
    def confirms(self, number: int, turn: int) -> None:
        self._kept()
        name = f"s{number}{turn}"
        had = any(one.sandbox == name for one in self.claims.values())
        self.claims, owner, _ = confirm(self.claims, self._pod(number), name)
        assert (owner == GUEST) == had
        if owner == GUEST:
            self.guests["disk" if number < 2 else "own"] = name
            if name not in self.standing:
                self.standing.append(name)

    @rule(seconds=st.integers(1, 40))
    def time_goes_by(self, seconds: int) -> None:
        self.now += seconds * SECOND
        self._kept()

    @precondition(lambda self: self.standing)
    @rule(data=st.data())
    def a_sandbox_ends(self, data: st.DataObject) -> None:
        self._kept()
        gone = data.draw(st.sampled_from(self.standing))
        self.standing.remove(gone)
        self._kept()
        assert not any(one.sandbox == gone for one in self.claims.values())
        self.guests = {claim: who for claim, who in self.guests.items() if who != gone}

    @invariant()
    def every_guest_has_its_claim_and_no_path_has_two(self) -> None:
        held = [(one.sandbox, one.claim_name) for one in self.claims.values() if not one.ends_ns]
        assert sorted(held) == sorted((who, claim) for claim, who in self.guests.items())
        paths = [one.path for one in self.claims.values()]
        assert len(paths) == len(dict.fromkeys(paths))


Node.TestCase.settings = settings(max_examples=60, stateful_step_count=25, deadline=None)
test_a_node = Node.TestCase
