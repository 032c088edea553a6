"""A call in a dump: upstream's lines, YAML that reads back as what was sent, and nothing secret."""

import gzip
import json
import time
from base64 import b64encode
from functools import partial
from typing import Any

import pytest
import yaml
from google.protobuf.message import Message
from hypothesis import given
from hypothesis import strategies as st

from nodeward.proto import cri_pb2 as cri
from nodeward.wire import dump_text
from nodeward.wire.dump_text import Call

AT_NS = 1_763_762_571_123_456_789
KUBECTL = "kubectl.kubernetes.io/last-applied-configuration"
CREATE = Call(7, "CreateContainer", "relayed")


def lines(message: Message, *shown: str) -> list[str]:
    return dump_text.body(type(message), message.SerializeToString(), shown)


def parsed(message: Message, *shown: str) -> Any:
    return yaml.safe_load("\n".join(lines(message, *shown)))


def test_a_request_is_a_block_behind_its_stamp_and_a_single_line_stays_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    head = "[2025-Nov-21 22:02:51.123] #7 CreateContainer => "
    assert len("2025-Nov-21 22:02:51.123") == dump_text.STAMP
    assert dump_text.request(CREATE, AT_NS, ["a: 1", "b: 2"]) == (
        f"{head}(relayed) REQUEST\n{head}    a: 1\n{head}    b: 2\n"
    )
    assert dump_text.request(CREATE, AT_NS, ["a: 1"]) == f"{head}(relayed) REQUEST a: 1\n"


def test_a_reply_has_its_latency_in_the_stamps_columns() -> None:
    head = "[               +0.001234] #7 CreateContainer <= "
    assert dump_text.reply(CREATE, 1_234_000, ["container_id: c"]) == f"{head}(relayed) REPLY container_id: c\n"
    assert dump_text.failed(CREATE, 1_234_000, "no\nroom") == f"{head}(relayed) FAILED\n{head}    no\n{head}    room\n"
    assert dump_text.named(CREATE, 1_234_000, "no\nroom") == f"{head}(relayed) FAILED: no room\n"
    assert dump_text.named(CREATE, 1_234_000, None) == f"{head}(relayed) REQUEST\n"


def test_a_failure_says_nothing_to_a_terminal() -> None:
    why = "mkdir \x1b]0;mine\x07: not a directory \u2028\u202e[1m\x9b2J"
    shown = dump_text.failed(CREATE, 1, why) + dump_text.named(CREATE, 1, why)
    assert shown.replace("\n", "").isprintable()
    assert "mkdir \\u001b]0;mine\\u0007: not a directory" in shown
    assert "\\u202e[1m\\u009b2J" in shown


def test_fields_come_by_name_maps_by_key_and_enums_as_words() -> None:
    message = cri.CreateContainerRequest(pod_sandbox_id="s")
    message.config.annotations["b"], message.config.annotations["a"] = "2", "yes"
    message.config.mounts.add(container_path="/x", propagation=cri.PROPAGATION_BIDIRECTIONAL, readonly=True)
    message.config.args[:] = ["-v", "", "12"]
    message.config.linux.SetInParent()
    assert lines(message, "commands", "annotations") == [
        "config:",
        "  annotations:",
        '    a: "yes"',
        '    b: "2"',
        "  args:",
        '  - "-v"',
        '  - ""',
        '  - "12"',
        "  linux: {}",
        "  mounts:",
        "  - container_path: /x",
        "    propagation: PROPAGATION_BIDIRECTIONAL",
        "    readonly: true",
        "pod_sandbox_id: s",
    ]


@given(
    st.dictionaries(st.text(), st.text(), max_size=4), st.lists(st.text(), max_size=4), st.integers(-(2**63), 2**63 - 1)
)
def test_what_is_written_reads_back(annotations: dict[str, str], args: list[str], shares: int) -> None:
    message = cri.CreateContainerRequest()
    message.config.annotations.update(annotations)
    message.config.args[:] = args
    message.config.linux.resources.cpu_shares = shares
    config = {
        **({"annotations": annotations} if annotations else {}),
        **({"args": args} if args else {}),
        "linux": {"resources": {"cpu_shares": shares} if shares else {}},
    }
    assert parsed(message, "commands", "annotations") == {"config": config} if shares or annotations or args else True


def test_a_line_is_a_line_whatever_a_text_holds() -> None:
    message = cri.CreateContainerRequest(pod_sandbox_id="a\nb\u2028c\x85d\r")
    assert len("\n".join(lines(message)).splitlines()) == 1


def test_values_of_the_environment_are_blanked_unless_they_are_asked_for() -> None:
    message = cri.CreateContainerRequest()
    message.config.envs.add(key="TOKEN", value=b"hunter2")
    assert lines(message) == ["config:", "  envs:", "  - key: TOKEN", "    value: '*** environment, not shown ***'"]
    assert "hunter2" not in "".join(lines(message, "credentials"))
    assert lines(message, "environment")[-1] == '    value: "aHVudGVyMg=="'


MANIFEST = '{"apiVersion":"v1","kind":"Pod","spec":{"containers":[{"env":[{"name":"TOKEN","value":"hunter2"}]}]}}'


@pytest.mark.parametrize(
    ("name", "text"),
    [
        pytest.param("kapp.k14s.io/original", MANIFEST, id="kapp"),
        pytest.param("banzaicloud.com/last-applied", b64encode(MANIFEST.encode()).decode(), id="base64"),
        pytest.param(
            "objectset.rio.cattle.io/applied",
            b64encode(gzip.compress(MANIFEST.encode())).decode(),
            id="gzip and base64",
        ),
        pytest.param("x", yaml.safe_dump(json.loads(MANIFEST)), id="YAML"),
    ],
)
def test_a_manifest_of_any_tool_is_blanked_in_an_annotation_unless_it_is_asked_for(name: str, text: str) -> None:
    message = cri.CreateContainerRequest()
    message.sandbox_config.annotations[name] = text
    message.sandbox_config.annotations["nodeward.io/limits"] = '{"app":{"sgx_epc":"4096"}}'
    told = lines(message, "annotations")
    assert f"    {name}: '*** environment, not shown ***'" in told
    assert yaml.safe_load("\n".join(told))["sandbox_config"]["annotations"]["nodeward.io/limits"].startswith("{")
    assert parsed(message, "annotations", "environment")["sandbox_config"]["annotations"][name] == text


def test_the_manifest_that_kubectl_keeps_in_an_annotation_is_blanked_in_every_message_unless_it_is_asked_for() -> None:
    name, manifest = KUBECTL, '{"env":[{"name":"TOKEN","value":"hunter2"}]}'
    message = cri.CreateContainerRequest()
    message.sandbox_config.annotations[name] = message.config.annotations[name] = manifest
    message.config.annotations["other"] = "shown"
    assert lines(message, "annotations") == [
        "config:",
        "  annotations:",
        f"    {name}: '*** environment, not shown ***'",
        "    other: shown",
        "sandbox_config:",
        "  annotations:",
        f"    {name}: '*** environment, not shown ***'",
    ]
    assert "hunter2" not in "".join(lines(message, "credentials"))
    assert "".join(lines(message, "annotations", "environment")).count("hunter2") == 2


def test_what_a_pods_author_says_is_blanked_unless_it_is_asked_for_and_what_kubelet_says_is_not() -> None:
    config = cri.ContainerConfig(command=["login", "hunter2"], args=["hunter2"], labels={"a": "hunter2"})
    config.labels["io.kubernetes.pod.name"] = "web"
    config.annotations.update({"io.kubernetes.container.restartCount": "2", "nodeward.io/limits": "hunter2"})
    config.annotations["io.kubernetes.container.preStopHandler"] = '{"exec":{"command":["hunter2"]}}'
    told = parsed(config)
    assert "hunter2" not in str(told)
    assert told["labels"]["io.kubernetes.pod.name"] == "web"
    assert told["annotations"]["io.kubernetes.container.restartCount"] == "2"
    assert str(parsed(config, "commands")).count("hunter2") == 2
    assert str(parsed(config, "annotations")).count("hunter2") == 3


def test_kubelets_own_keys_are_shown_only_where_kubelet_writes_them_and_selectors_are_blanked() -> None:
    """Kubelet copies annotations and labels of a pod to its sandbox, whatever their keys are."""
    sandbox = cri.PodSandboxConfig(labels={"io.kubernetes.pod.name": "web", "io.kubernetes.container.name": "hunter2"})
    for key in ("io.kubernetes.container.hash", "io.kubernetes.pod.name", "kubernetes.io/config.hash"):
        sandbox.annotations[key] = "hunter2"
    sandbox.annotations["kubernetes.io/config.source"] = "api"
    told = parsed(sandbox)
    assert "hunter2" not in str(told)
    assert (told["labels"]["io.kubernetes.pod.name"], told["annotations"]["kubernetes.io/config.source"]) == (
        "web",
        "api",
    )
    for kind in (cri.ContainerFilter, cri.PodSandboxFilter, cri.ContainerStatsFilter, cri.PodSandboxStatsFilter):
        told = parsed(kind(label_selector={"team": "hunter2", "io.kubernetes.pod.uid": "u"}))
        assert told["label_selector"] == {"team": "*** annotations, not shown ***", "io.kubernetes.pod.uid": "u"}


@pytest.mark.parametrize(
    ("said", "kept"),
    [
        ('runc create failed: exec: "/hunter2": stat /hunter2: no such file or directory', "runc create failed: "),
        ("crun: executable file `hunter2` not found in $PATH", "crun: "),
        ('error finding executable "hunter2" in PATH', "error finding "),
        ("command error: exit status 1, stdout: hunter2, stderr: , exit code 1", ""),
        ("OCI runtime exec failed: exec failed: no space left", None),
    ],
    ids=["runc", "crun", "gvisor", "cri-o", "no-command"],
)
def test_a_command_in_a_runtimes_words_is_blanked_unless_it_is_asked_for(said: str, kept: str | None) -> None:
    hidden = said if kept is None else f"{kept}*** commands, not shown ***"
    assert dump_text.words(said, ()) == hidden
    assert parsed(cri.ContainerStatus(message=said))["message"] == hidden
    assert dump_text.words(said, ("commands",)) == said


def test_credentials_are_blanked_unless_they_are_asked_for() -> None:
    message = cri.PullImageRequest(image=cri.ImageSpec(image="busybox"))
    auth, secret = message.auth, [name for name in cri.AuthConfig.DESCRIPTOR.fields_by_name if name != "server_address"]
    assert sorted(secret) == ["auth", "identity_token", "password", "registry_token", "username"]
    for name in (*secret, "server_address"):
        setattr(auth, name, f"given-{name}")
    raw = message.SerializeToString()
    told = dump_text.body(cri.PullImageRequest, raw)
    assert [f"  {name}: '*** credentials, not shown ***'" in told for name in secret] == [True] * 5
    assert "".join(told).count("given-") == 1
    assert "  server_address: given-server_address" in told
    shown = dump_text.body(cri.PullImageRequest, raw, ["credentials"])
    assert [f"  {name}: given-{name}" in shown for name in secret] == [True] * 5


SHA = f"sha256:{'a1' * 32}"
SECRET = "*** credentials, not shown ***"


@pytest.mark.parametrize(
    ("message", "told"),
    [
        (cri.WindowsContainerSecurityContext(credential_spec="hunter2"), {"credential_spec": SECRET}),
        (cri.WindowsSandboxSecurityContext(credential_spec="hunter2"), {"credential_spec": SECRET}),
        *(
            (kind(url="http://[::1]:35/exec/hunter2"), {"url": f"http://[::1]:35/exec/{SECRET}"})
            for kind in (cri.ExecResponse, cri.AttachResponse, cri.PortForwardResponse)
        ),
        (cri.AuthConfig(server_address="https://me:hunter2@r.io"), {"server_address": f"{SECRET}r.io"}),
        (
            cri.ImageSpec(image="me:hun/ter2@r.io/a", image_ref=f"hunter2@r.io:50/a@{SHA}", user_specified_image="a:1"),
            {"image": f"{SECRET}r.io/a", "image_ref": f"{SECRET}r.io:50/a@{SHA}", "user_specified_image": "a:1"},
        ),
        (
            cri.Image(repo_digests=[f"r.io/a@{SHA}"], repo_tags=["me:hunter2@r.io/a:1"]),
            {"repo_digests": [f"r.io/a@{SHA}"], "repo_tags": [f"{SECRET}r.io/a:1"]},
        ),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Message) else "",
)
def test_what_opens_a_door_within_another_text_is_blanked_unless_it_is_asked_for(
    message: Message, told: dict[str, object]
) -> None:
    assert parsed(message) == told
    assert "hunter2" in "".join(lines(message, "credentials"))


def test_a_runtimes_configuration_may_have_passwords_of_registries_and_is_blanked() -> None:
    message = cri.StatusResponse(info={"config": '{"registry": {"configs": {"x": {"auth": {"password": "hunter2"}}}}}'})
    body = partial(dump_text.body, cri.StatusResponse, message.SerializeToString())
    assert body() == body(("environment",)) == ["info: '*** credentials, not shown ***'"]
    assert "hunter2" in "".join(body(("credentials",)))


@pytest.mark.parametrize("kind", [cri.ContainerStatusResponse, cri.PodSandboxStatusResponse])
def test_a_runtimes_own_words_repeat_the_environment_and_are_blanked(
    kind: "type[cri.ContainerStatusResponse | cri.PodSandboxStatusResponse]",
) -> None:
    message = kind()
    message.info["info"] = '{"envs": ["TOKEN=hunter2"]}'
    told = dump_text.body(kind, message.SerializeToString())
    assert told == ["info: '*** environment, not shown ***'"]


def test_what_the_schema_does_not_know_is_told_by_number_and_size() -> None:
    raw = cri.VersionRequest(version="v1").SerializeToString() + bytes([0xFA, 0x01, 3]) + b"abc"
    assert dump_text.body(cri.VersionRequest, raw) == ["version: v1", "# field 31, not known to this version, 3 bytes"]


def test_what_is_no_message_is_told_by_its_size() -> None:
    assert dump_text.body(cri.VersionRequest, b"\xff\xff") == ["# 2 bytes that are no VersionRequest"]
    assert dump_text.body(None, b"abc") == ["# 3 bytes of a message that this version does not know"]
    assert dump_text.body(cri.VersionRequest, b"") == ["{}"]


def test_the_kinds_of_a_method_are_found_by_service_and_name() -> None:
    assert dump_text.kinds("RuntimeService", "Version") == (cri.VersionRequest, cri.VersionResponse)
    assert dump_text.kinds("ImageService", "PullImage") == (cri.PullImageRequest, cri.PullImageResponse)
    assert dump_text.kinds("ImageService", "Version") is None
    assert dump_text.kinds("RuntimeService", "Tomorrow") is None
