"""Who holds what, as it is shown: from samples and pods to rows and sentences."""

from dataclasses import replace

from nodeward.cli.keys import lines
from nodeward.engine.show.explain import explain
from nodeward.engine.show.key_rows import key_rows
from nodeward.engine.show.view import node_view
from nodeward.engine.state.root import State
from nodeward.model import events as ev
from nodeward.model.settings import EngineSettings, KeySettings, LedgerSettings, Mode
from nodeward.model.view import KeyHolder, KeyRow
from nodeward.model.workload import ContainerSpec, PodSpec, PodUid
from tests.unit.engine.build import SECOND, Told, sandbox

TDX = "devices.kubevirt.io/tdx"
KATA = "tdx.intel.com/keys"
KEYS = {"tdx": KeySettings((TDX, KATA), reserve=1)}


def told(*events: ev.Event, keys: dict[str, KeySettings] | None = None, mode: Mode = Mode.OBSERVE) -> Told:
    tell = Told(State(settings=EngineSettings(ledger=LedgerSettings(mode, KEYS if keys is None else keys))))
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
    """What kubelet's checkpoint says of KubeVirt's resource."""
    held = {PodUid(uid): {TDX: ids} for uid, ids in pods.items()}
    return ev.KeysHeld(0, held, {TDX: registered} if registered else {}, fault)


def row(tell: Told) -> KeyRow:
    (only,) = key_rows(tell.state, tell.at_ns)
    return only


def test_free_is_what_the_kernel_has_less_what_is_held_promised_foreign_and_in_reserve() -> None:
    """Given four VMs of which three have begun, a Kata pod that has, and two keys that nobody here took."""
    vms = [pod(uid) for uid in ("a", "b", "c", "d")]
    found = row(told(*vms, pod("kata", overhead=True), sample(6, a=1, b=1, c=1, kata=1)))

    assert (found.used, found.entitled, found.charged, found.foreign, found.free) == (6, 5, 4, 2, 8)
    assert found.sentence == (
        "8 free: 16 there are, less 5 that pods hold or were promised, 2 in foreign use and 1 in reserve."
    )
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


def test_a_pod_that_only_the_runtime_knows_has_its_name_from_there() -> None:
    found = row(told(ev.SandboxStarted(sandbox("x")), sample(1, x=1)))
    assert found.holders == (KeyHolder("shop", "pod-x", "x", 0, 1),)


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
    """Given one orphan that stays, while others come and go below the same cgroup and below another."""
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


def test_what_cannot_be_said_is_said_and_no_number_is_made_up() -> None:
    tell = told()
    assert (row(tell).free, row(tell).sentence) == (None, "the kernel has not been read yet.")
    tell(ev.KeysRead(0))
    assert (row(tell).free, "or misc.capacity cannot be read" in row(tell).sentence) == (None, True)
    tell(ev.KeysRead(0, {"sev_es": 4}))
    assert (row(tell).free, "none in misc.capacity" in row(tell).sentence) == (None, True)
    tell(ev.KeysRead(0, {"tdx": 4}))
    assert (row(tell).free, "use is unknown" in row(tell).sentence) == (None, True)


def test_nothing_is_shown_while_the_ledger_is_off() -> None:
    assert key_rows(told(sample(), mode=Mode.OFF).state, SECOND) == ()
    tell = told(pod("a"), sample(1, a=1))
    tell(ev.SettingsChanged(replace(tell.state.settings, ledger=LedgerSettings(Mode.OFF))))
    assert tell.state.ledger.sample is None


def test_a_pod_with_keys_of_which_no_limit_is_wanted_is_shown_as_counted() -> None:
    tell = told(ev.SandboxStarted(sandbox("a")), ev.SandboxStarted(sandbox("b")), pod("a"), pod("b", 0), sample(1, a=1))
    states = {row.pod: row.state for row in node_view(tell.state, tell.at_ns, {}).rows}
    assert states == {"pod-a": "counted", "pod-b": "unmanaged"}


def test_the_keys_of_a_pod_that_has_no_cgroup_yet_are_explained_too() -> None:
    """Given a pod that waits for its start, or a node whose limits are off."""
    tell = told(pod("a"), sample(1, a=1), handed(a=("tdx2", "tdx7")))
    view = node_view(tell.state, tell.at_ns, {})
    assert explain(view, "shop/pod-a") == [
        "keys tdx: 2 promised by devices.kubevirt.io/tdx or tdx.intel.com/keys, 1 held, given by kubelet: tdx2, tdx7."
    ]
    assert explain(view, "shop/pod-b") is None
