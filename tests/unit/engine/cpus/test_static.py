"""`static`, where kubelet's own code is not there to compare with: what it says of settings, restarts, resizes and
isolated CPUs; and the examples of the reference, which kubelet's code has confirmed."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodeward.engine.cpus.kubelet_take import Options, take
from nodeward.model.annotations import PREFER_ISOLATED
from nodeward.model.cpus import Ask
from nodeward.model.cpuset import of as cpuset_of
from nodeward.model.cpuset import parse
from nodeward.model.policy_rule import Amount, AmountKind, PolicySettings, StaticSettings
from nodeward.model.refusal import Reason
from nodeward.model.topology import Machine
from nodeward.model.workload import Qos, Role
from tests.unit.engine.cpus.machines import PolicyNode, W, machine, refusal, shapes

CORE_0 = Amount(AmountKind.CPUSET, parse("0,16"))
ONE = Amount(AmountKind.QUANTITY, milli=1000)


def settings(reserved: Amount, *options: str, relaxed: bool = False) -> PolicySettings:
    return PolicySettings("static", reserved=reserved, static=StaticSettings(relaxed, dict.fromkeys(options, True)))


class Node(PolicyNode):
    """The pod is what stands before a dot in a container's name."""

    def __init__(self, of: Machine = W, reserved: Amount = CORE_0, *options: str, relaxed: bool = False) -> None:
        super().__init__(settings(reserved, *options, relaxed=relaxed), of)

    def asks(
        self,
        name: str,
        milli: int,
        role: Role = Role.REGULAR,
        *,
        qos: Qos = Qos.GUARANTEED,
        known: bool = True,
        pod_level: bool = False,
        isolated: str = "",
        has: str = "",
    ) -> str:
        pod, said = _pod(name), {PREFER_ISOLATED: isolated} if isolated else {}
        key, request = f"{pod}/{name}", (qos, milli, 0, role, "spec", known)
        return self.admit(Ask(key, pod, "shop", pod, name, *request, said, parse(has), pod_level)) or self.own(
            name, pod
        )

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
    assert node.asks("p.init", 4000, Role.INIT) == "1-2,17-18"
    assert node.asks("p.sidecar", 2000, Role.SIDECAR) == "1,17"
    assert node.asks("q", 2000) == "3,19", "of another pod"
    assert node.asks("p.app", 2000) == "2,18"
    assert node.why("p.app").code == "cpus-static-reused"
    before = node.shared
    node.ends("p.init")
    assert node.shared == before, "others of the pod have them"
    for name in ("p.app", "p.sidecar", "q"):
        node.ends(name)
    assert node.shared == "0-31"


def test_a_container_that_reuses_cpus_grows_by_others() -> None:
    node = Node()
    node.asks("p.init", 2000, role=Role.INIT)
    has = node.asks("p.app", 2000)
    grown = parse(node.asks("p.app", 3000))
    assert (grown.bit_count(), parse(has) & ~grown) == (3, 0)


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
    own = take(of, free, 54, Options(full_pcpus_only=True, across_numa=True))
    assert own is not None
    assert own.bit_count() == 54


def test_spread_cpus_that_are_aligned_by_socket_stay_in_one() -> None:
    """Kubelet 1.37 takes 1-6,12 here."""
    eight_nodes = machine(2, 4, 1, 2, threads=1)
    reserved = Amount(AmountKind.CPUSET, parse("0,15"))
    node = Node(eight_nodes, reserved, "align-by-socket", "distribute-cpus-across-numa", "strict-cpu-reservation")
    assert node.asks("p", 7000) == "1-7"


@given(st.sampled_from([2, 4, 6, 16]), st.integers(1, 2), st.sets(st.integers(0, 31), max_size=9), st.integers(0, 2))
def test_spread_cpus_are_in_one_socket_where_one_has_as_many(
    nodes: int, cores: int, used: set[int], spare: int
) -> None:
    of = machine(2, nodes, 1, cores, threads=1)
    free = of.online & ~cpuset_of(used)
    most = max((socket.cpus & free).bit_count() for socket in of.packages)
    own = take(of, free, most - spare, Options(across_numa=True, align_by_socket=True))
    assert own is not None
    assert any(own & ~socket.cpus == 0 for socket in of.packages)
