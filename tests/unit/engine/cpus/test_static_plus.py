"""`static-plus`: pools, own CPUs and shares by the request, who is widened, who stays where it is."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodeward.engine.cpus.pools import set_of
from nodeward.model.annotations import PREFER_ISOLATED
from nodeward.model.cpus import Ask
from nodeward.model.cpuset import parse
from nodeward.model.policy_rule import Amount, AmountKind, PolicySettings
from nodeward.model.topology import Machine
from nodeward.model.workload import Qos, Role
from tests.unit.engine.cpus.machines import PolicyNode, W, machine, refusal, shapes

ONE = Amount(AmountKind.QUANTITY, milli=1000)


class Node(PolicyNode):
    def __init__(self, of: Machine = W, reserved: Amount = ONE) -> None:
        super().__init__(PolicySettings("static-plus", reserved=reserved), of)

    def asks(
        self,
        name: str,
        milli: int,
        pod: str = "",
        *,
        role: Role = Role.REGULAR,
        namespace: str = "shop",
        known: bool = True,
        isolated: str = "true",
        has: int = 0,
    ) -> str:
        pod, said = pod or name, {PREFER_ISOLATED: isolated}
        key, request = f"{pod}/{name}", (Qos.BURSTABLE, milli, 0, role, "", known)
        return self.admit(Ask(key, pod, namespace, pod, name, *request, said, has)) or self.has(name, pod)


def test_the_example_of_the_reference() -> None:
    node = Node()
    assert node.asks("c1", 2500) == "1-31"
    assert node.own("c1") == "1,17"
    assert node.grant("c1").shares == 512
    assert node.asks("c2", 900) == "2-16,18-31"
    assert node.asks("c3", 3000, namespace="kube-system") == "0"
    assert node.grant("c3").shares == 3072


@pytest.mark.parametrize(
    ("milli", "cpus", "shares"),
    [
        pytest.param(0, "1-31", 2, id="nothing"),
        pytest.param(999, "1-31", 1022, id="less than one"),
        pytest.param(1000, "16", 1024, id="one"),
        pytest.param(2000, "1,17", 2048, id="a whole core"),
    ],
)
def test_full_and_part(milli: int, cpus: str, shares: int) -> None:
    node = Node()
    assert node.asks("c", milli) == cpus
    assert node.grant("c").shares == shares


def test_isolated_cpus_come_first_unless_the_pod_opts_out_or_they_do_not_suffice() -> None:
    node = Node(machine(isolated=parse("8-9,24-25")))
    assert node.asks("out", 2000, isolated="false") == "10,26"
    assert node.asks("many", 5000) == "1-2,16-18"
    assert node.asks("few", 2000) == "8,24"
    node.asks("part", 1500, isolated="maybe")
    assert node.own("part") == "9"


def test_who_came_later_may_use_the_reserved_cpus_while_requests_leave_nothing_of_the_shared() -> None:
    node = Node(machine(1, 1, cores=2))  # CPUs 0-3, 0 is reserved
    for name in ("a", "b", "c"):
        assert node.asks(name, 900) == "1-3"
    assert node.asks("d", 900) == "1-3", "300 milliCPU were left"
    assert node.asks("e", 0) == "0-3"
    assert node.asks("own", 1000) == "2"
    assert [node.has(name) for name in "abcde"] == ["1,3", "1,3", "1,3", "0-1,3", "0-1,3"]
    node.ends("a")
    assert node.has("d") == "1,3"
    node.ends("own")
    assert node.has("e") == "1-3"


def test_the_last_shared_cpu_may_be_taken_since_the_reserved_ones_are_left() -> None:
    node = Node(machine(1, 1, cores=2))
    node.asks("a", 100)
    assert node.asks("own", 3000) == "1-3"
    assert node.has("a") == "0"
    assert node.asks("b", 100) == "0"


def test_too_many_are_refused_with_the_numbers_and_nothing_has_changed() -> None:
    node = Node(machine(1, 1, cores=4, isolated=parse("3,7")))
    before = node.at
    assert node.asks("c", 6000) == (
        "it requests 6000 milliCPU, which is 6 CPU(s) of its own, and there are 5 shared (1-2,4-6) and 2 isolated "
        "(3,7); request fewer, or end a container that has some"
    )
    assert node.at is before


@pytest.mark.parametrize(
    ("milli", "own"),
    [
        pytest.param(4000, "8-9,24-25", id="as many"),
        pytest.param(4500, "8-9,24-25", id="a part besides"),
        pytest.param(6000, "8-9,11,24-25,27", id="grows"),
        pytest.param(2000, "8,24", id="shrinks"),
        pytest.param(500, "", id="shares"),
    ],
)
def test_a_restart_and_a_resize_keep_what_they_can(milli: int, own: str) -> None:
    node = Node()
    node.asks("c", 4000, has=parse("8-9,24-25"))
    node.asks("other", 2000)
    node.asks("c", milli)
    assert node.own("c") == own


@pytest.mark.parametrize(
    ("has", "own"),
    [
        pytest.param("4,20", "4,20", id="ordinary ones"),
        pytest.param("8,24", "8,24", id="isolated ones"),
        pytest.param("4,40", "4,20", id="one that went offline"),
        pytest.param("0-31", "8,24", id="all, which says nothing"),
    ],
)
def test_an_exclusive_container_that_runs_stays_where_it_is(has: str, own: str) -> None:
    node = Node(machine(isolated=parse("8-9,24-25")))
    assert node.asks("c", 2000, has=parse(has)) == own
    assert node.asks("c", 2000, isolated="false") == own, "also where it opts out since"


def test_what_nobody_knows_shares_and_loses_nothing_that_it_has() -> None:
    node = Node()
    assert node.asks("new", 4000, known=False) == "1-31"
    assert node.grant("new").shares == 0
    had = node.asks("old", 4000)
    assert node.asks("old", 0, known=False) == had


def test_an_init_container_that_has_ended_leaves_its_cpus_to_its_pod() -> None:
    node = Node(machine(1, 1, cores=2))
    own = node.asks("init", 3000, pod="p", role=Role.INIT)
    assert node.asks("app", 3000, pod="p") == own
    assert node.has("init", "p") == "0"
    assert "0 shared" in node.asks("app", 1000, pod="q"), "another pod's"
    assert node.asks("init", 3000, pod="p", role=Role.INIT) == own, "the pod has a new sandbox"
    assert node.asks("app", 3000, pod="p") == own


def test_a_sidecar_that_is_tried_again_takes_nothing_from_the_init_container_that_runs() -> None:
    node = Node()
    node.asks("side", 0, pod="p", role=Role.SIDECAR)
    own = node.asks("init", 3000, pod="p", role=Role.INIT)
    node.asks("side", 0, pod="p", role=Role.SIDECAR)
    assert node.has("init", "p") == own


@pytest.mark.parametrize(
    ("amount", "why"),
    [
        pytest.param(Amount(), "is not set", id="none"),
        pytest.param(Amount(AmountKind.QUANTITY, milli=0), "0 CPUs of the 8", id="nothing"),
        pytest.param(Amount(AmountKind.QUANTITY, milli=8001), "9 CPUs of the 8", id="more than there are"),
        pytest.param(Amount(AmountKind.QUANTITY, milli=8000), "takes all CPUs", id="all"),
        pytest.param(Amount(AmountKind.CPUSET), "it names no CPU", id="an empty set"),
        pytest.param(Amount(AmountKind.CPUSET, parse("0,77")), "CPUs 77 are not online", id="one that is not there"),
        pytest.param(Amount(AmountKind.CPUSET, parse("2")), "CPUs 2 are isolated", id="an isolated one"),
        pytest.param(Amount(AmountKind.CPUSET, parse("9")), "CPUs 9 are not available", id="one kept from us"),
        pytest.param(Amount(AmountKind.EXCLUDE, parse("0-77")), "it names no CPU", id="all but all"),
    ],
)
def test_reserved_cpus_that_cannot_be_are_refused(amount: Amount, why: str) -> None:
    available = Amount(AmountKind.EXCLUDE, parse("3,9,11"))
    rules = PolicySettings("static-plus", available=available, reserved=amount)
    assert why in refusal(rules, machine(1, 1, cores=6, isolated=parse("2")))


@pytest.mark.parametrize(
    ("amount", "why"),
    [
        pytest.param(Amount(AmountKind.QUANTITY, milli=2000), "(2000m) is a number", id="a quantity"),
        pytest.param(Amount(AmountKind.CPUSET, parse("40")), "(cpuset:40) leaves containers no CPU", id="not there"),
    ],
)
def test_available_cpus_that_cannot_be_are_refused(amount: Amount, why: str) -> None:
    assert why in refusal(PolicySettings("static-plus", available=amount, reserved=ONE))


def test_reserved_is_cpu_0_or_whole_cores() -> None:
    assert Node().cpus("reserved") == "0"
    assert Node(reserved=Amount(AmountKind.QUANTITY, milli=1500)).cpus("reserved") == "0,16"
    assert Node(reserved=Amount(AmountKind.CPUSET, parse("3,19"))).cpus("reserved") == "3,19"


STEPS = st.tuples(
    st.sampled_from("abcd"),
    st.sampled_from("pq"),
    st.sampled_from([0, 1000, 2000]) | st.integers(0, 9000),
    st.sampled_from(Role),
    st.sampled_from(["shop", "kube-system"]),
    st.sampled_from(["ends", "a guess", "opts out", "asks", "asks"]),
    st.just(0) | st.integers(0, 2**20),
)


@given(shapes.filter(lambda one: one.online.bit_count() > 3), st.integers(0, 2), st.lists(STEPS, max_size=20))
def test_whatever_comes_changes_and_goes_no_cpu_is_twice_somebodys_and_none_is_lost(
    shape: Machine, isolated: int, steps: list[tuple[str, str, int, Role, str, str, int]]
) -> None:
    cores = shape.cores[1 : 1 + isolated] if len(shape.cores) > 3 else ()
    node = Node(replace(shape, isolated=sum(core.cpus for core in cores)))
    first = node.at
    for name, pod, milli, role, namespace, how, has in steps:
        before, out, known = node.at, "false" if how == "opts out" else "true", how != "a guess"
        if how == "ends":
            node.ends(name, pod)
            continue
        told = node.asks(name, milli, pod, role=role, namespace=namespace, known=known, isolated=out, has=has)
        assert node.at is not before or not known or told.startswith("it requests")
        check(node)
    for key in list(node.at.grants):
        node.ends(key.partition("/")[2], key.partition("/")[0])
    assert node.at == first


def check(node: Node) -> None:
    at, machine, taken = node.at, node.ground.machine, 0
    pools, grants = at.pools, at.grants.values()
    for grant in grants:
        assert taken & grant.own == 0, "somebody else's"
        assert not grant.own or grant.own & machine.isolated in (0, grant.own), "of one pool"
        assert set_of(at, grant)
        taken |= grant.own
    assert all(pool.cpus & taken == 0 for pool in pools.values())
    assert taken | pools["shared"].cpus | pools["isolated"].cpus | pools["reserved"].cpus == machine.online
    for name, pool in pools.items():
        assert sorted(pool.members) == sorted(grant.key for grant in grants if grant.pool == name)
        assert name == "isolated" or pool.cpus & machine.isolated == 0
