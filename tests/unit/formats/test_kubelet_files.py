"""Kubelet's checkpoint of devices and its endpoints."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from nodeward.core.errors import WireError
from nodeward.neighbours.kubelet import checkpoint_file
from nodeward.neighbours.kubelet import endpoint_files as text
from nodeward.neighbours.kubelet.checkpoint_file import Checkpoint, decode
from nodeward.neighbours.kubelet.endpoint_files import IMAGES, RUNTIME
from tests.unit.formats import checkpoints

TDX = "devices.kubevirt.io/tdx"
SECRET = "c2VjcmV0"
WRITTEN = sorted((Path(__file__).parents[2] / "corpus" / "kubelet-checkpoint").glob("kubelet-*"))
"""By the code of these kubelets, of the same data (tests/corpus/README.md)."""
REAL = WRITTEN[-1].read_bytes()


def entry(uid: object, ids: object, resource: str = TDX, container: str = "compute") -> dict[str, object]:
    return checkpoints.entry(uid, ids, resource, container, SECRET)


def file(*entries: dict[str, object], registered: object = None) -> bytes:
    return checkpoints.file(entries, registered)


def test_pods_have_their_ids_and_resources_their_registered_ones() -> None:
    said = file(
        entry("a", {"-1": ["tdx10"], "0": ["tdx2"]}),
        entry("a", {"-1": ["tdx2"]}, container="init"),
        entry("b", {"1": ["tdx1"]}),
        entry("b", {"1": ["gpu0"]}, resource="example.com/gpu"),
        registered={TDX: ["tdx10", "tdx2", "tdx1"], "example.com/gpu": ["gpu0"]},
    )
    assert decode(said, [TDX]) == Checkpoint(
        {"a": {TDX: ("tdx2", "tdx10")}, "b": {TDX: ("tdx1",)}}, {TDX: ("tdx1", "tdx2", "tdx10")}
    )


def test_kubelets_before_1_20_wrote_a_list() -> None:
    assert decode(file(entry("a", ["tdx1", "tdx0"])), [TDX]).pods == {"a": {TDX: ("tdx0", "tdx1")}}


@pytest.mark.parametrize("said", [checkpoints.file(None), file(), file(registered={}), file(entry("a", None))])
def test_nothing_is_no_fault(said: bytes) -> None:
    assert decode(said, [TDX]) == Checkpoint({}, {})


@pytest.mark.parametrize(
    ("said", "fault"),
    [
        pytest.param(b"", "cannot be read", id="empty"),
        pytest.param(file(entry("a", ["tdx0"]))[:-9], "cannot be read", id="torn"),
        pytest.param(b"{}", "missing required field `Data`", id="foreign"),
        pytest.param(file(entry(3, [])), r"\$.Data.PodDeviceEntries\[0\].PodUID", id="uid-is-a-number"),
        pytest.param(file(entry("", ["tdx0"])), r"Data.PodDeviceEntries\[0\].PodUID", id="no-uid"),
        pytest.param(file(entry("a", ["tdx0", "\x1b[2J"])), "DeviceIDs: id 1 is empty, too long or not", id="escape"),
        pytest.param(file(registered={TDX: ["x" * 254]}), rf"RegisteredDevices\[{TDX}\]: id 0", id="long"),
        pytest.param(
            file(registered={TDX: [str(number) for number in range(65537)]}), "65537 ids .* at most 65536", id="many"
        ),
        pytest.param(REAL.replace(b"tdx11", b"tdx12", 1), "Checksum is not that of Data", id="other-id"),
        pytest.param(REAL.replace(b"tdx4", b"tdx5", 1), "Checksum is not that of Data", id="other-registered"),
        pytest.param(REAL[: REAL.index(b',"Checksum"')] + b"}", "missing required field `Checksum`", id="no-checksum"),
        pytest.param(b" " * (checkpoint_file.MAX_BYTES + 1), "at most 16777216 are read", id="large"),
    ],
)
def test_garbage_is_refused_with_its_place(said: bytes, fault: str) -> None:
    with pytest.raises(WireError, match=fault) as caught:
        decode(said, [TDX])
    assert SECRET not in str(caught.value)
    assert "\x1b" not in str(caught.value)


@pytest.mark.parametrize("path", WRITTEN, ids=lambda path: path.name)
def test_what_the_code_of_each_kubelet_writes_is_read_and_one_changed_id_is_seen(path: Path) -> None:
    gpu, none = "example.com/gpu", "example.com/none"
    assert decode(path.read_bytes(), [TDX, gpu, none]) == Checkpoint(
        {
            "4c6d6af9-c064-4c4a-812a-af554d74a0d1": {TDX: ("tdx11",)},
            "dfe90188-9a84-449e-8197-d57e2fd78b11": {TDX: ("tdx2", "tdx3", "tdx10"), gpu: ("gpu0",)},
        },
        {TDX: ("tdx0", "tdx4", "tdx10"), gpu: (), none: ()},
    )
    with pytest.raises(WireError, match="Checksum is not that of Data"):
        decode(path.read_bytes().replace(b"gpu0", b"gpu1"), [TDX])


def test_a_checksum_is_made_in_pieces_between_which_others_may_have_the_interpreter() -> None:
    data = file(*(entry(f"pod-{number}", {"-1": [f"tdx{number}"]}) for number in range(500)))
    seen = list[int]()

    def pieces(whole: Iterator[bytes]) -> Iterator[bytes]:
        for piece in whole:
            seen.append(len(piece))
            yield piece

    assert decode(data, [TDX], pieces) == decode(data, [TDX])
    assert len(seen) > 10
    assert max(seen) <= 4096


def test_a_file_too_large_to_be_summed_is_believed_by_its_json() -> None:
    padded = REAL.replace(b'"Checksum":2812360149', b'"Checksum":1') + b" " * checkpoint_file.MAX_CHECKED_BYTES
    assert len(decode(padded, [TDX]).pods) == 2


def test_a_resource_without_healthy_ids_is_registered_all_the_same() -> None:
    assert decode(file(registered={TDX: None}), [TDX]).registered == {TDX: ()}


OURS = {RUNTIME: "unix:///run/nodeward/cri.sock", IMAGES: "unix:///run/nodeward/cri.sock"}
KUBEADM = """\
apiVersion: kubelet.config.k8s.io/v1beta1
authentication:
  anonymous:
    enabled: false
# the runtime of this node
containerRuntimeEndpoint: ""   # as the flag says
evictionHard: {memory.available: 100Mi}
kind: KubeletConfiguration
"""
FLAGS = 'KUBELET_KUBEADM_ARGS="--container-runtime-endpoint=unix:///run/containerd/containerd.sock --image=p:3"\n'


def test_a_configuration_changes_in_one_line_and_says_what_it_was() -> None:
    changed = text.config_with(KUBEADM, {RUNTIME: OURS[RUNTIME]})
    assert yaml.safe_load(changed) == yaml.safe_load(KUBEADM) | {RUNTIME: OURS[RUNTIME]}
    assert [line for line in changed.split("\n") if line not in KUBEADM.split("\n")] == [
        f'{text.HAD} containerRuntimeEndpoint: ""   # as the flag says',
        f"containerRuntimeEndpoint: {OURS[RUNTIME]}",
    ]
    assert text.back(changed, OURS.values()) == KUBEADM


def test_a_key_that_is_not_there_is_added_and_vanishes() -> None:
    changed = text.config_with(KUBEADM, OURS)
    assert text.in_config(changed) == OURS
    assert text.back(changed, OURS.values()) == KUBEADM


keys = st.dictionaries(st.sampled_from(["kind", "a", "staticPodPath"]), st.text("xyz /:'\"\n", max_size=9), min_size=1)
endpoints = st.dictionaries(st.sampled_from([RUNTIME, IMAGES]), st.sampled_from(["", "unix:///run/a b.sock", "/x"]))


@given(keys, endpoints, st.sampled_from(["", "\n", "\n\n"]), st.booleans())
def test_any_configuration_comes_back_byte_for_byte(
    others: dict[str, str], named: dict[str, str], end: str, first: bool
) -> None:
    lines = [
        yaml.safe_dump(others, default_flow_style=False).rstrip("\n"),
        *(f"{key}: '{named[key]}'" for key in named),
    ]
    before = "\n".join(reversed(lines) if first else lines) + end
    changed = text.config_with(before, OURS)
    assert yaml.safe_load(changed) == yaml.safe_load(before) | OURS
    assert text.back(changed, OURS.values()) == before


@pytest.mark.parametrize(
    "odd",
    [
        '{"kind": "KubeletConfiguration", "containerRuntimeEndpoint": "unix:///x"}',
        "containerRuntimeEndpoint: >-\n  unix:///x\nkind: K\n",
        "kind: a\n---\nkind: b\n",
        "- a\n",
        "\t- :\n",
        "",
        "[" * 2000,
    ],
)
def test_what_cannot_be_changed_in_one_line_is_refused(odd: str) -> None:
    with pytest.raises(WireError):
        text.config_with(odd, OURS)


def test_a_flag_changes_and_comes_back() -> None:
    assert text.in_flags(FLAGS) == {RUNTIME: "unix:///run/containerd/containerd.sock"}
    changed = text.flags_with(FLAGS, OURS)
    assert changed == f"{text.HAD} {FLAGS}" + FLAGS.replace("unix:///run/containerd/containerd.sock", OURS[RUNTIME])
    assert text.back(changed, OURS.values()) == FLAGS


def test_what_others_changed_meanwhile_stays() -> None:
    changed = text.flags_with(FLAGS, OURS)
    lines = changed.split("\n")
    edited = "\n".join([lines[0], lines[1].replace("p:3", "p:4"), *lines[2:]])
    assert text.back(edited, OURS.values()) == FLAGS.replace("p:3", "p:4")
    theirs = "\n".join([lines[0], lines[1].replace(OURS[RUNTIME], "unix:///run/crio.sock"), *lines[2:]])
    assert text.back(theirs, OURS.values()) == theirs
    config = text.config_with(KUBEADM, OURS).replace(f"{RUNTIME}: {OURS[RUNTIME]}", f"{RUNTIME}: /run/crio.sock")
    assert text.in_config(text.back(config, OURS.values())) == {RUNTIME: "/run/crio.sock"}
    assert f'{text.HAD} {RUNTIME}: ""' in text.back(config, OURS.values())


def test_the_last_flag_counts_and_all_are_changed() -> None:
    twice = "A='--container-runtime-endpoint /a'\n# --container-runtime-endpoint=/c\nB=--container-runtime-endpoint=/b"
    assert text.in_flags(twice) == {RUNTIME: "/b"}
    changed = text.flags_with(twice, {RUNTIME: "/r"})
    assert text.in_flags(changed) == {RUNTIME: "/r"}
    assert "'--container-runtime-endpoint /r'" in changed
    assert text.back(changed, ["/r"]) == twice


def test_flags_that_cannot_be_read_or_changed_are_refused() -> None:
    with pytest.raises(WireError, match="write --container-runtime-endpoint=unix:///PATH"):
        text.in_flags("A=\"--container-runtime-endpoint='unix:///x'\"")
    with pytest.raises(WireError, match="write it in one line"):
        text.flags_with("A=--container-runtime-endpoint=/a \\\n--v=2", OURS)
