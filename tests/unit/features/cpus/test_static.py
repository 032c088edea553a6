"""`static`, where kubelet's own code is not there to compare with: what it says of settings, restarts, resizes and
isolated CPUs; and the examples of the reference, which kubelet's code has confirmed."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodeward.core.annotations import PREFER_ISOLATED
from nodeward.core.cpuset import of as cpuset_of
from nodeward.core.cpuset import parse
from nodeward.core.refusal import Reason
from nodeward.core.topology import Machine
from nodeward.core.workload import Qos, Role
from nodeward.features.cpus.policies.kubelet_take import Options, take
from nodeward.features.cpus.pools import set_of
from nodeward.features.cpus.settings import Amount, AmountKind, PolicySettings, StaticSettings
from tests.unit.features.build import there
from tests.unit.features.cpus.machines import PolicyNode, W, ask, machine, refusal, shapes

CORE_0 = Amount(AmountKind.CPUSET, parse("0,16"))
ONE = Amount(AmountKind.QUANTITY, milli=1000)


def settings(reserved: Amount, *options: str, relaxed: bool = False) -> PolicySettings:
    return PolicySettings("static", reserved=reserved, static=StaticSettings(relaxed, dict.fromkeys(options, True)))


class Node(PolicyNode):
    """The pod is what stands before a dot in a container's name."""

    def __init__(self, of: Machine = W, reserved: Amount = CORE_0, *options: str, relaxed: bool = False) -> None:
        super().__init__(settings(reserved, *options, relaxed=relaxed), of)

    def asks(self, name: str, milli: int, *, isolated: str = "", has: str = "", **more: object) -> str:
        notes, pod = {PREFER_ISOLATED: isolated} if isolated else {}, _pod(name)
        asked = ask(name, milli, notes=notes, pod=pod, **{"source": "spec", "has": parse(has), **more})  # type: ignore[arg-type]
        return self.admit(asked) or self.own(name, pod)

    def why(self, name: str) -> Reason:
        return self.grant(name, _pod(name)).reason

    def ends(self, name: str, pod: str = "") -> None:
        super().ends(name, pod or _pod(name))

    @property
    def shared(self) -> str:
        return self.cpus("shared")


def _pod(name: str) -> str:
    return name.partition(".")[0]


def test_the_examples_of_the_reference() -> None:
    node = Node()
    assert [node.asks(name, milli) for name, milli in (("a", 2000), ("b", 9000), ("c", 3000))] == [
        *("1,17", "2,4-7,20-23", "3,18-19")
    ]
    assert node.shared == "0,8-16,24-31"
    assert node.why("b") == Reason("cpus-static-taken", (9, "2,4-7,20-23", 28, 0, 1, 0, 1))
    assert Node(W, CORE_0, "distribute-cpus-across-numa").asks("a", 12000) == "4-6,8-10,20-22,24-26"
    three = Node(W, Amount(AmountKind.QUANTITY, milli=2500), "strict-cpu-reservation")
    assert three.shared == "2-15,17-31"


@pytest.mark.parametrize(
    ("milli", "qos", "known", "pod_level", "code"),
    [
        pytest.param(1500, Qos.GUARANTEED, True, False, "cpus-static-fraction", id="no whole number"),
        pytest.param(0, Qos.GUARANTEED, True, False, "cpus-static-none-requested", id="nothing requested"),
        pytest.param(2000, Qos.BURSTABLE, True, False, "cpus-static-qos", id="not Guaranteed"),
        pytest.param(2000, Qos.GUARANTEED, False, False, "cpus-static-unknown", id="a guess"),
        pytest.param(2000, Qos.GUARANTEED, True, True, "cpus-static-pod-level", id="resources of the pod"),
    ],
)
def test_who_shares(milli: int, qos: Qos, known: bool, pod_level: bool, code: str) -> None:
    node = Node()
    assert node.asks("a", milli, qos=qos, known=known, pod_level=pod_level) == ""
    assert (node.at.pools["shared"].members, node.why("a").code) == (("a/a",), code)


def test_a_restart_keeps_the_set_and_a_guess_changes_nothing() -> None:
    node = Node()
    first = node.asks("a", 2000)
    node.asks("b", 16000)
    assert node.asks("a", 2000) == first
    assert node.asks("a", 0, known=False) == first
    assert node.asks("late", 3000, known=False) == ""
    assert node.asks("late", 3000) == "2-3,18"


def test_a_resize_keeps_the_cpus_that_it_can() -> None:
    node = Node()
    node.asks("a", 2000)
    node.asks("b", 2000)
    assert node.asks("a", 4000) == "1,3,17,19"
    assert node.why("a") == Reason("cpus-static-grown", (2, 4, "3,19"))
    assert node.asks("a", 3000) == "1,3,17"
    assert node.why("a") == Reason("cpus-static-shrunk", (4, 3, "19"))
    assert node.asks("a", 1500) == ""
    assert node.shared == "0-1,3-17,19-31"
    assert node.asks("a", 1000) == "1", "and it has a set of its own again"
    assert node.at.pools["shared"].members == ()


def test_who_ran_before_keeps_its_cpus_if_they_are_free_and_as_many() -> None:
    node = Node()
    assert node.asks("a", 2000, has="9,30") == "9,30"
    assert node.why("a") == Reason("cpus-static-kept", (2, "9,30"))
    assert node.asks("b", 2000, has="9,31") == "1,17", "9 is taken"
    assert node.asks("c", 2000, has="0,10") == "2,18", "0 is reserved"
    assert node.asks("d", 2000, has="11") == "3,19", "too few"


def test_containers_of_a_pod_take_what_its_init_containers_had() -> None:
    node = Node()
    assert node.asks("p.init", 4000, role=Role.INIT) == "1-2,17-18"
    assert node.asks("p.sidecar", 2000, role=Role.SIDECAR) == "1,17"
    assert node.asks("q", 2000) == "3,19", "of another pod"
    assert node.asks("p.app", 2000) == "2,18"
    assert node.why("p.app").code == "cpus-static-reused"
    assert node.asks("p.app", 3000) == "2,4,18", "it grows by others"
    before = node.shared
    node.ends("p.init")
    assert node.shared == before, "others of the pod have them"
    for name in ("p.app", "p.sidecar", "q"):
        node.ends(name)
    assert node.shared == "0-31"


@pytest.mark.parametrize(
    ("milli", "said", "relaxed", "own"),
    [
        pytest.param(1000, "", False, "8", id="a single one"),
        pytest.param(2000, "", False, "10,26", id="ordinary ones otherwise"),
        pytest.param(2000, "true", False, "8,24", id="asked for"),
        pytest.param(2000, "", True, "8,24", id="relaxed"),
        pytest.param(2000, "perhaps", False, "10,26", id="a word that is no boolean"),
        pytest.param(1000, "false", True, "10", id="declined"),
        pytest.param(5000, "true", False, "10-12,26-27", id="too few isolated"),
        pytest.param(28000, "", False, "1-2,4-15,17-18,20-31", id="too few others"),
    ],
)
def test_isolated_cpus_are_a_second_store(milli: int, said: str, relaxed: bool, own: str) -> None:
    node = Node(machine(isolated=parse("8-9,24-25")), relaxed=relaxed)
    before = node.shared
    assert before == "0-7,10-23,26-31"
    assert node.asks("a", milli, isolated=said) == own
    node.ends("a")
    assert node.shared == before, "nobody shares isolated CPUs afterwards"


@pytest.mark.parametrize(
    ("options", "milli", "why"),
    [
        ((), 31000, "not enough cpus available to satisfy request: requested=31, available=30; "),
        (
            ("full-pcpus-only",),
            3000,
            "SMT Alignment Error: requested 3 cpus not multiple cpus per core = 2; request 4 CPUs",
        ),
        (("full-pcpus-only",), 32000, "available physical CPUs = 30, requested CPUs = 32, CPUs per core = 2; "),
    ],
    ids=lambda one: one if isinstance(one, str) else "",
)
def test_refused_in_kubelets_words(options: tuple[str, ...], milli: int, why: str) -> None:
    node = Node(W, CORE_0, *options)
    assert why in node.asks("a", milli)
    assert (node.shared, node.at.grants) == ("0-31", {})


def test_who_shares_is_never_left_without_a_cpu() -> None:
    node = Node(W, CORE_0, "strict-cpu-reservation")
    node.asks("a", 0)
    assert "no CPU would be left for 1 container(s)" in node.asks("b", 30000)
    node.ends("a")
    assert node.asks("b", 30000) == "1-15,17-31"
    assert "every CPU is exclusive" in node.asks("a", 0)


@pytest.mark.parametrize(
    ("of", "rules", "why"),
    [
        (W, PolicySettings("static"), "policy.ReservedResources.CPU is not set"),
        (W, settings(ONE, "full-pcpu-only"), "did you mean full-pcpus-only?"),
        (W, settings(ONE, "distribute-cpus-across-cores", "full-pcpus-only"), "cannot be used together"),
        (
            machine(2, 1, 1),
            settings(Amount(AmountKind.CPUSET, parse("0-15")), "strict-cpu-reservation"),
            "keeps all of 0-15",
        ),
    ],
    ids=lambda one: one if isinstance(one, str) else "",
)
def test_settings_that_do_not_fit(of: Machine, rules: PolicySettings, why: str) -> None:
    assert why in refusal(rules, of)


@given(shapes, st.integers(0), st.integers(1, 99), st.tuples(*[st.booleans()] * 5))
def test_any_machine_gets_as_many_as_were_asked_for(of: Machine, some: int, count: int, on: tuple[bool, ...]) -> None:
    free = of.online & some
    own = take(of, free, count, Options(*on))
    if own is None:
        assert count > free.bit_count()
    else:
        assert (own.bit_count(), own & ~free) == (count, 0)


def test_cores_reserved_in_part_do_not_keep_a_spread_request_waiting() -> None:
    """Kubelet 1.37 does not return from these: full cores over NUMA nodes that have an odd number of free CPUs."""
    of = machine(1, 4, 2)
    free = of.online & ~parse("0,8,16")
    assert there(take(of, free, 54, Options(full_pcpus_only=True, across_numa=True))).bit_count() == 54


def test_spread_cpus_that_are_aligned_by_socket_stay_in_one() -> None:
    """Kubelet 1.37 takes 1-6,12 here."""
    eight_nodes = machine(2, 4, 1, 2, threads=1)
    reserved = Amount(AmountKind.CPUSET, parse("0,15"))
    node = Node(eight_nodes, reserved, "align-by-socket", "distribute-cpus-across-numa", "strict-cpu-reservation")
    assert node.asks("p", 7000) == "1-7"


@given(st.sampled_from([2, 4, 6, 16]), st.integers(1, 2), st.sets(st.integers(0, 31), max_size=9), st.integers(0, 2))
def test_spread_cpus_are_in_one_socket_where_it_has_as_many(nodes: int, cores: int, used: set[int], spare: int) -> None:
    of = machine(2, nodes, 1, cores, threads=1)
    free = of.online & ~cpuset_of(used)
    most = max((socket.cpus & free).bit_count() for socket in of.packages)
    own = there(take(of, free, most - spare, Options(across_numa=True, align_by_socket=True)))
    assert any(own & ~socket.cpus == 0 for socket in of.packages)


class PlusNode(PolicyNode):
    def __init__(self, of: Machine = W, reserved: Amount = ONE) -> None:
        super().__init__(PolicySettings("static-plus", reserved=reserved), of)

    def asks(self, name: str, milli: int, pod: str = "", *, isolated: str = "true", **more: object) -> str:
        asked = ask(name, milli, Qos.BURSTABLE, notes={PREFER_ISOLATED: isolated}, pod=pod, **more)  # type: ignore[arg-type]
        return self.admit(asked) or self.has(name, pod)


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
    node = PlusNode()
    assert node.asks("c", milli) == cpus
    assert node.grant("c").shares == shares


def test_isolated_cpus_come_first_unless_the_pod_opts_out_or_they_do_not_suffice() -> None:
    node = PlusNode(machine(isolated=parse("8-9,24-25")))
    assert node.asks("out", 2000, isolated="false") == "10,26"
    assert node.asks("many", 5000) == "1-2,16-18"
    assert node.asks("few", 2000) == "8,24"
    node.asks("part", 1500, isolated="maybe")
    assert node.own("part") == "9"


def test_who_came_later_may_use_the_reserved_cpus_while_requests_leave_nothing_of_the_shared() -> None:
    node = PlusNode(machine(1, 1, cores=2))  # CPUs 0-3, 0 is reserved
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
    node = PlusNode(machine(1, 1, cores=2))
    node.asks("a", 100)
    assert node.asks("own", 3000) == "1-3"
    assert node.has("a") == "0"
    assert node.asks("b", 100) == "0"


def test_too_many_are_refused_with_the_numbers_and_nothing_has_changed() -> None:
    node = PlusNode(machine(1, 1, cores=4, isolated=parse("3,7")))
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
    node = PlusNode()
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
    node = PlusNode(machine(isolated=parse("8-9,24-25")))
    assert node.asks("c", 2000, has=parse(has)) == own
    assert node.asks("c", 2000, isolated="false") == own, "also where it opts out since"


def test_what_nobody_knows_shares_and_loses_nothing_that_it_has() -> None:
    node = PlusNode()
    assert node.asks("new", 4000, known=False) == "1-31"
    assert node.grant("new").shares == 0
    had = node.asks("old", 4000)
    assert node.asks("old", 0, known=False) == had


def test_an_init_container_that_has_ended_and_no_other_one_leaves_its_cpus_to_its_pod() -> None:
    node = PlusNode(machine(1, 1, cores=2))
    node.asks("side", 0, pod="p", role=Role.SIDECAR)
    own = node.asks("init", 3000, pod="p", role=Role.INIT)
    node.asks("side", 0, pod="p", role=Role.SIDECAR)
    assert node.has("init", "p") == own, "a sidecar that is tried again takes nothing from it"
    assert node.asks("app", 3000, pod="p") == own
    assert node.has("init", "p") == "0"
    assert "0 shared" in node.asks("app", 1000, pod="q"), "another pod's"
    assert node.asks("init", 3000, pod="p", role=Role.INIT) == own, "the pod has a new sandbox"
    assert node.asks("app", 3000, pod="p") == own


AVAILABLE = Amount(AmountKind.EXCLUDE, parse("3,9,11"))
SIX = machine(1, 1, cores=6, isolated=parse("2"))


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
    assert why in refusal(PolicySettings("static-plus", available=AVAILABLE, reserved=amount), SIX)


def test_available_cpus_that_cannot_be_are_refused() -> None:
    for amount, why in (
        (Amount(AmountKind.QUANTITY, milli=2000), "(2000m) is a number"),
        (Amount(AmountKind.CPUSET, parse("40")), "(cpuset:40) leaves containers no CPU"),
    ):
        assert why in refusal(PolicySettings("static-plus", available=amount, reserved=ONE))


def test_reserved_is_cpu_0_or_whole_cores() -> None:
    amounts = ONE, Amount(AmountKind.QUANTITY, milli=1500), Amount(AmountKind.CPUSET, parse("3,19"))
    assert [PlusNode(reserved=amount).cpus("reserved") for amount in amounts] == ["0", "0,16", "3,19"]


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
    node = PlusNode(replace(shape, isolated=sum(core.cpus for core in cores)))
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


def check(node: PlusNode) -> None:
    machine, taken, pools, grants = node.ground.machine, node.alone(), node.at.pools, node.at.grants.values()
    assert all(set_of(node.at, grant) for grant in grants)
    assert all(grant.own & machine.isolated in (0, grant.own) for grant in grants), "of one pool"
    assert taken | pools["shared"].cpus | pools["isolated"].cpus | pools["reserved"].cpus == machine.online
    for name, pool in pools.items():
        assert sorted(pool.members) == sorted(grant.key for grant in grants if grant.pool == name)
        assert name == "isolated" or pool.cpus & machine.isolated == 0
