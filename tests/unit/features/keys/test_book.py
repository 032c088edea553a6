"""Who holds what, as it is shown: from samples, pods and what kubelet has handed out to rows and sentences."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodeward.cli.keys import lines
from nodeward.core import events as ev
from nodeward.core.modes import Mode
from nodeward.core.workload import ContainerSpec, PodSpec, PodUid, Role
from nodeward.features.keys import kubelet_view as handed_out
from nodeward.features.keys.kubelet_view import specs
from nodeward.features.keys.rows import KeyHolder, KeyRow
from nodeward.features.keys.settings import KeyKind, KeysSettings
from nodeward.features.keys.view import key_rows
from nodeward.features.pods.budget import pod_budget
from nodeward.features.root import SettingsChanged, State
from nodeward.features.settings import EngineSettings
from nodeward.people.explain import explain
from nodeward.people.view import node_view
from tests.unit.features.build import SECOND, Told, sandbox

TDX = "devices.kubevirt.io/tdx"
KATA = "tdx.intel.com/keys"
KEYS = {"tdx": KeyKind((TDX, KATA), reserve=1)}


def told(*events: ev.Event, keys: dict[str, KeyKind] | None = None, mode: Mode = Mode.OBSERVE) -> Told:
    tell = Told(State(settings=EngineSettings(keys=KeysSettings(mode, KEYS if keys is None else keys))))
    for event in events:
        tell(event)
    return tell


def pod(uid: str, keys: int = 1, *, overhead: bool = False, terminal: bool = False) -> ev.PodSeen:
    """A VM's launcher that asks for keys in a container, or a Kata pod whose overhead has them."""
    containers = (ContainerSpec("compute", declared={} if overhead else {TDX: keys}),)
    spec = PodSpec(PodUid(uid), "shop", f"pod-{uid}", containers, overhead={KATA: keys} if overhead else {})
    return ev.PodSeen(replace(spec, terminal=terminal))


def sample(root: int = 0, elsewhere: tuple[ev.HeldElsewhere, ...] = (), **pods: int) -> ev.KeysRead:
    held = {PodUid(uid): {"tdx": (amount, amount)} for uid, amount in pods.items()}
    return ev.KeysRead(0, {"tdx": 16}, {"tdx": (root, root)}, held, elsewhere=elsewhere)


def handed(registered: tuple[str, ...] = (), fault: str = "", **pods: tuple[str, ...]) -> ev.KeysHeld:
    held = {PodUid(uid): {TDX: ids} for uid, ids in pods.items()}
    return ev.KeysHeld(0, held, {TDX: registered} if registered else {}, fault)


def row(tell: Told) -> KeyRow:
    (only,) = key_rows(tell.state, tell.at_ns)
    return only


def test_free_is_what_the_kernel_has_less_what_is_held_promised_foreign_and_in_reserve() -> None:
    vms = [pod(uid) for uid in ("a", "b", "c", "d")]
    found = row(told(*vms, pod("kata", overhead=True), sample(6, a=1, b=1, c=1, kata=1)))

    assert (found.used, found.entitled, found.charged, found.foreign, found.free) == (6, 5, 4, 2, 8)
    assert found.sentence == ("8 of 16 free (pods 5, outside 2, reserve 1).")
    assert [(one.pod, one.entitled, one.charged) for one in found.holders] == [
        ("pod-a", 1, 1),
        ("pod-b", 1, 1),
        ("pod-c", 1, 1),
        ("pod-d", 1, None),
        ("pod-kata", 1, 1),
    ]


def test_a_pod_that_has_ended_is_promised_nothing_and_what_it_still_holds_counts() -> None:
    found = row(told(pod("a", terminal=True), pod("b", terminal=True), sample(1, a=1)))
    assert found.holders == (KeyHolder("shop", "pod-a", "a", 0, 1),)
    assert found.free == 14


def test_what_a_vm_holds_outside_of_its_pod_is_its_pods_from_the_second_sample_on() -> None:
    """Kata's VMM may be in an overhead cgroup. In the first sample it may have come since the root was read."""
    home = sandbox("x")
    for path in (f"/kata_overhead/{home.id}", f"/kata.slice/kata-overhead.slice/runtime-rs-{home.id}.scope"):
        held = ev.HeldElsewhere(path, "tdx", 1, below=False)
        other = ev.HeldElsewhere("/kata_overhead/another", "tdx", 1, below=False)
        tell = told(ev.SandboxStarted(home), sample(2, (held, other)))
        assert (row(tell).charged, row(tell).foreign) == (0, 2)
        tell(sample(2, (held, other)))
        assert (row(tell).charged, row(tell).foreign) == (1, 1)
        assert [one.cgroup for one in row(tell).elsewhere] == ["/kata_overhead/another"]
    forged = ev.HeldElsewhere(f"/user.slice/kata_overhead/{home.id}", "tdx", 1, below=False)
    tell = told(ev.SandboxStarted(home), sample(1, (forged,)), sample(1, (forged,)))
    assert (row(tell).charged, row(tell).foreign) == (0, 1)


def test_what_is_charged_below_a_pods_cgroup_is_that_pods_though_no_runtime_has_told_of_it() -> None:
    """Without NRI the fourth VM of four keys was refused for good: its key was its own and foreign too."""
    held = ev.HeldElsewhere("/kubepods/podx/c1", "tdx", 1, below=False, pod=PodUid("x"))
    tell = told(pod("x"), sample(1, (held,)), sample(1, (held,)))
    assert (row(tell).entitled, row(tell).charged, row(tell).foreign) == (1, 1, 0)
    assert row(tell).free == 14, "of 16, without the one in reserve"
    assert row(tell).elsewhere == ()


def test_whose_keys_they_are_that_no_known_pod_holds() -> None:
    places = {
        "/machine.slice/vm.scope": "a machine outside of Kubernetes",
        "/system.slice/containerd.service": "a service of the host",
        "/kata_overhead/abc": "Kata, outside of its pod",
        "/kubepods.slice/kubepods-podx.slice": "a pod that is not known",
        "/": "the root cgroup, or one to which the controller is not handed down",
        "/own": "another cgroup",
    }
    held = [ev.HeldElsewhere(path, "tdx", 1, below=False) for path in places]
    orphan = ev.HeldElsewhere("/kubepods", "tdx", 1, below=True)
    other = ev.HeldElsewhere("/own", "sev_es", 1, below=False)

    found = row(told(sample(7, (*held, orphan, other))))

    assert {one.cgroup: one.about for one in found.elsewhere} == {
        **places,
        "/kubepods": "orphan: its cgroup was removed",
    }
    words = ["machine", "service", "kata", "unknown-pod", "root", "other", "orphan"]
    assert [one.holder for one in found.elsewhere] == words, "labels of metrics: they stay"


def test_an_orphan_that_stays_has_leaked_and_only_what_was_there_all_the_time() -> None:
    other = ev.HeldElsewhere("/kubepods", "sev_es", 1, below=True)
    tell = told()

    def at(minute: float, below: int, slice_: int = 0) -> KeyRow:
        found = [ev.HeldElsewhere("/kubepods", "tdx", below, below=True)] if below else []
        found += [ev.HeldElsewhere("/own.slice", "tdx", slice_, below=True)] if slice_ else []
        tell.at_ns = SECOND + int(minute * 60 * SECOND)
        tell(sample(below + slice_, (*found, other)))
        return row(tell)

    at(0, 2, 1)
    at(8, 1, 0)
    almost = at(14.9, 3, 1)
    assert ([(one.for_ms, one.leaked) for one in almost.elsewhere], almost.leaked) == ([(894_000, 0), (0, 0)], 0)
    leaked = at(15, 3, 1)
    assert ([one.leaked for one in leaked.elsewhere], leaked.leaked) == ([1, 0], 1)
    assert any(one.startswith("1 key(s) leaked below /kubepods: ") for one in leaked.findings)
    text = "\n".join(lines(leaked))
    assert "/kubepods: holds 3 (orphan: its cgroup was removed), for 900 s, 1 of them leaked" in text
    assert "/own.slice: holds 1 (orphan: its cgroup was removed), for 6 s" in text
    assert at(23, 3, 1).leaked == 1
    both = at(30, 3, 1)
    assert ([one.leaked for one in both.elsewhere], both.leaked) == ([3, 1], 4)
    assert any("removed there, the oldest for 30 minutes; " in one for one in both.findings), "two for a quarter"
    gone = at(31, 0)
    assert (gone.leaked, gone.findings, gone.orphan_ms) == (0, almost.findings, None)


def test_nothing_is_shown_while_keys_are_not_counted() -> None:
    assert key_rows(told(sample(), mode=Mode.OFF).state, SECOND) == ()
    tell = told(pod("a"), sample(1, a=1))
    tell(SettingsChanged(replace(tell.state.settings, keys=KeysSettings(Mode.OFF))))
    assert tell.state.keys.sample is None


def test_a_pod_with_keys_of_which_no_limit_is_wanted_is_shown_as_counted() -> None:
    tell = told(ev.SandboxStarted(sandbox("a")), ev.SandboxStarted(sandbox("b")), pod("a"), pod("b", 0), sample(1, a=1))
    states = {row.pod: row.state for row in node_view(tell.state, tell.at_ns, {}).rows}
    assert states == {"pod-a": "counted", "pod-b": "unmanaged"}


def test_the_keys_of_a_pod_that_has_no_cgroup_yet_are_explained_too() -> None:
    tell = told(pod("a"), sample(1, a=1), handed(a=("tdx2", "tdx7")))
    view = node_view(tell.state, tell.at_ns, {})
    assert explain(view, "shop/pod-a") == [
        "keys tdx: 2 promised by devices.kubevirt.io/tdx or tdx.intel.com/keys, 1 held, given by kubelet: tdx2, tdx7."
    ]
    assert explain(view, "shop/pod-b") is None


# ---- what kubelet has handed out, beside what pods asked for and what the kernel charged -----------------------------


def test_each_holder_has_its_ids_and_the_resource_its_registered_ones() -> None:
    found = row(told(pod("a"), pod("b"), sample(1, a=1), handed(("tdx0", "tdx1", "tdx10"), a=("tdx10",))))
    assert found.holders == (
        KeyHolder("shop", "pod-a", "a", 1, 1, ("tdx10",)),
        KeyHolder("shop", "pod-b", "b", 1, None),
    )
    assert (found.registered, found.findings) == ({TDX: ("tdx0", "tdx1", "tdx10")}, ())
    said = list(lines(found))
    assert "  devices.kubevirt.io/tdx: 3 healthy ids registered with kubelet: tdx0 to tdx10" in said
    assert "  shop/pod-a: promised 1, holds 1, id tdx10" in said
    assert "  shop/pod-b: promised 1, holds nothing that is known" in said


def test_an_id_that_two_pods_have_is_counted_twice_and_is_a_finding() -> None:
    found = row(told(pod("a"), pod("b"), pod("c"), sample(0), handed(a=("tdx0",), b=("tdx0",), c=("tdx1",))))
    assert (found.entitled, found.free) == (3, 12)
    assert found.findings == (
        "kubelet gave tdx0 of devices.kubevirt.io/tdx to shop/pod-a and shop/pod-b: each may take a key, so each is "
        "counted; delete all but one.",
    )
    assert f"  finding: {found.findings[0]}" in list(lines(found))


@pytest.mark.parametrize(
    ("asked", "ids", "promised"),
    [
        pytest.param(2, ("tdx0",), 2, id="spec-asks-for-more"),
        pytest.param(1, ("tdx0", "tdx1"), 2, id="kubelet-gave-more"),
    ],
)
def test_a_pod_is_promised_the_larger_of_its_spec_and_its_ids(asked: int, ids: tuple[str, ...], promised: int) -> None:
    assert row(told(pod("a", asked), sample(0), handed(a=ids))).entitled == promised


def test_a_pod_that_kubelet_has_admitted_counts_before_anybody_else_tells_of_it() -> None:
    tell = told(ev.ApiBack(), sample(0), handed(new=("tdx3",)))
    assert row(tell).holders == (KeyHolder("", "", "new", 1, None, ("tdx3",)),)
    assert row(tell).free == 14
    assert "  pod new, which is not known: promised 1, holds nothing that is known, id tdx3" in list(lines(row(tell)))


def test_a_pod_that_only_the_runtime_or_kubelets_pods_api_tells_of_has_its_name_from_there() -> None:
    by_runtime = row(told(ev.SandboxStarted(sandbox("x")), sample(1, x=1)))
    assert by_runtime.holders == (KeyHolder("shop", "pod-x", "x", 0, 1),)
    tell = told(ev.PodsOfKubelet(0, (pod("new").pod,)), sample(0), handed(new=("tdx3",)))
    assert row(tell).holders == (KeyHolder("shop", "pod-new", "new", 1, None, ("tdx3",)),)
    assert "  shop/pod-new: promised 1, holds nothing that is known, id tdx3" in list(lines(row(tell)))


@pytest.mark.parametrize(
    ("by_api", "by_kubelet", "promised"),
    [
        pytest.param(pod("a", 2), None, 2, id="only the API server tells of it"),
        pytest.param(None, pod("a", 2), 2, id="only kubelet tells of it"),
        pytest.param(pod("a"), pod("a", terminal=True), 0, id="kubelet says that it has ended"),
        pytest.param(pod("a", terminal=True), pod("a"), 0, id="the API server says that it has ended"),
    ],
)
@pytest.mark.parametrize("last", ["the API server", "kubelet"])
def test_a_pod_is_promised_the_larger_of_both_words_and_has_ended_by_either(
    by_api: ev.PodSeen | None, by_kubelet: ev.PodSeen | None, promised: int, last: str
) -> None:
    words: list[ev.Event] = [by_api] if by_api is not None else []
    words += [ev.PodsOfKubelet(0, () if by_kubelet is None else (by_kubelet.pod,))]
    told_in = reversed(words) if last == "the API server" else words

    assert row(told(*told_in, sample(0))).entitled == promised


AMOUNTS = st.lists(st.tuples(st.sampled_from(Role), st.integers(0, 3)), max_size=4)


@given(AMOUNTS, AMOUNTS, st.integers(0, 3), st.integers(0, 3))
def test_however_two_words_of_a_pod_differ_it_is_promised_the_larger(
    by_api: list[tuple[Role, int]], by_kubelet: list[tuple[Role, int]], api_over: int, kubelet_over: int
) -> None:
    def spec(amounts: list[tuple[Role, int]], over: int) -> PodSpec:
        every = (ContainerSpec(f"c{number}", role, {TDX: one}) for number, (role, one) in enumerate(amounts))
        return PodSpec(PodUid("a"), "shop", "pod-a", tuple(every), {KATA: over})

    one, other = spec(by_api, api_over), spec(by_kubelet, kubelet_over)
    found = row(told(ev.PodSeen(one), ev.PodsOfKubelet(0, (other,)), sample(0)))
    assert found.entitled == max(pod_budget(one, TDX) + api_over, pod_budget(other, TDX) + kubelet_over)


def test_kubelets_word_comes_first_while_it_tells_of_the_pod_and_the_api_servers_fills_in() -> None:
    renamed = replace(pod("a").pod, containers=(ContainerSpec("new", declared={TDX: 1}),))
    tell = told(ev.PodSeen(renamed), pod("b"), sample(0), ev.PodsOfKubelet(0, (pod("a").pod,)))
    assert {uid: spec.containers[0].name for uid, spec in specs(tell.state).items()} == {"a": "compute", "b": "compute"}
    assert handed_out.asking(tell.state, PodUid("a"), TDX) == ["compute", "new"], "either may take the key"
    tell(ev.PodsOfKubelet(0, (renamed,)))
    assert handed_out.asking(tell.state, PodUid("a"), TDX) == ["new"]
    tell(ev.PodsOfKubelet(0, fault="no socket", absent=True))
    assert handed_out.asking(tell.state, PodUid("a"), TDX) == ["new"], "what it told stands"


def test_a_pod_that_is_gone_is_shown_as_that_and_not_counted() -> None:
    tell = told(ev.ApiBack(), pod("a"), sample(0), handed(a=("tdx3",)))
    tell(ev.PodGone(PodUid("a")))
    for _ in range(3):
        tell.at_ns += 2 * SECOND
        tell(sample(0))
    assert (row(tell).entitled, row(tell).free) == (0, 15)
    assert row(tell).holders == (KeyHolder("", "", "a", 0, None, ("tdx3",), gone=True),)
    assert "  pod a, which has ended: kubelet has not taken back id tdx3 yet" in list(lines(row(tell)))


def test_a_pod_that_nobody_can_tell_of_counts_for_as_long_as_the_api_server_is_silent() -> None:
    tell = told(sample(0), handed(a=("tdx3",)))
    tell.at_ns += 700 * SECOND
    tell(sample(0))
    assert row(tell).entitled == 1


def test_a_pod_that_has_ended_and_still_holds_a_key_is_no_double_of_its_ids_next_owner() -> None:
    tell = told(pod("a", terminal=True), pod("b"), sample(1, a=1), handed(a=("tdx0",), b=("tdx0",)))
    assert [(one.pod, one.entitled, one.charged, one.gone) for one in row(tell).holders] == [
        ("pod-a", 0, 1, False),
        ("pod-b", 1, None, False),
    ]
    assert row(tell).findings == ()


def test_a_checkpoint_that_cannot_be_read_leaves_what_was_known_and_says_so() -> None:
    tell = told(ev.SandboxStarted(sandbox("a")), sample(0), handed(a=("tdx0",)))
    tell(handed(fault="torn"))
    assert row(tell).entitled == 1
    assert row(tell).findings == ("what kubelet has handed out cannot be read (torn); what was read before stands.",)
    tell(handed())
    assert (row(tell).entitled, row(tell).findings) == (0, ())


def test_what_kubelet_has_handed_out_is_shown_where_the_kernel_counts_nothing() -> None:
    tell = told(ev.SandboxStarted(sandbox("a")), pod("a"), handed(("tdx0", "tdx1"), a=("tdx0",)))
    for read in (ev.KeysRead(0), ev.KeysRead(0, {"tdx": 4})):
        tell(read)
        assert row(tell).free is None
        assert "  shop/pod-a: promised 1, holds nothing that is known, id tdx0" in list(lines(row(tell)))
