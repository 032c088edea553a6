"""Kubelet's endpoints in texts: what is changed, and that the way back is exact."""

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from nodeward.wire import kubelet_endpoints as text
from nodeward.wire.errors import WireError
from nodeward.wire.kubelet_endpoints import IMAGES, RUNTIME

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
        "[" * 5000,
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
    edited = changed.replace('p:3"\n', 'p:4"\n').replace("p:4", "p:3", 1) if changed.count("p:3") > 1 else changed
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
