"""Settings: strict, every fault at once, each with its path."""

import contextlib
import re
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import FrameType

import click
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from nodeward.cli import config, doctor, node, relay, webhook
from nodeward.core.modes import Mode
from nodeward.features.keys.settings import KeyKind, Share
from nodeward.features.settings import Settings
from nodeward.host.clock import SystemClock
from nodeward.host.hostfs import OsFiles
from nodeward.neighbours.nri.session import NriSettingsError
from nodeward.programs.node.doors import nri
from nodeward.programs.node.oci_runtimes import OciRuntimes
from nodeward.settings.checks import address
from nodeward.settings.load import SettingsError, from_tree, load, misnamed, read_yaml
from nodeward.settings.reload import merged
from tests.unit.host.test_runner import core_with

Pairs = Mapping[str, str]


def faults(file: Path | None, text: str, environ: Pairs | None = None, flags: Pairs | None = None) -> list[str]:
    if file is not None:
        file.write_text(text)
    with pytest.raises(SettingsError) as caught:
        load(str(file) if file is not None else None, environ or {}, flags)
    return caught.value.faults


@pytest.mark.parametrize("text", ["a: &x 1\nb: *x\n", "[]", "a: [", "2"])
def test_aliases_and_what_is_no_mapping_are_refused(tmp_path: Path, text: str) -> None:
    assert faults(tmp_path / "s.yaml", text)


def test_text_that_looks_like_an_impossible_date_is_text() -> None:
    assert load(None, {"NODEWARD_NODE_NAME": "2024-13-45"}).node_name == "2024-13-45"


FAULTS = Path(__file__).with_name("faults.txt").read_text()


@pytest.mark.parametrize(("text", "fault"), re.findall(r"^([^#\n].*?)\s+=> (.+)$", FAULTS, re.MULTILINE))
def test_a_fault_in_a_file_is_named_with_path_line_and_what_was_meant(text: str, fault: str, tmp_path: Path) -> None:
    file = tmp_path / "s.yaml"
    (found,) = faults(file, text)
    assert found.startswith(fault)
    assert found.endswith(f"({file} line 1)")


@pytest.mark.parametrize(
    ("environ", "flags", "fault"),
    [
        ({"NODEWARD_SANDBOXES__PROFILES__KATA": "rs"}, {}, "sandboxes.profiles.kata: 'rs' is not allowed"),
        ({"NODEWARD_LIMITS__STRICT": "maybe"}, {}, "limits.strict: 'maybe' is not allowed"),
        ({"NODEWARD_LIMITS__STRIKT": "true"}, {}, "limits.strikt: unknown key; did you mean strict?"),
        ({"NODEWARD_STATE_DIR__X": "y"}, {}, "state_dir: "),
        ({}, {"limits.strict.x": "true"}, "limits.strict: "),
    ],
)
def test_a_fault_in_a_variable_or_a_flag_is_named(environ: dict[str, str], flags: dict[str, str], fault: str) -> None:
    (found,) = faults(None, "", environ, flags)
    assert found.startswith(fault)


def test_each_fault_says_where_it_was_written(tmp_path: Path) -> None:
    file, text = tmp_path / "s.yaml", "limits:\n  mode: maybe\n  on_error: pass\nnri:\n  plugin_indx: '1'\npods: 3\n"
    environ = {"NODEWARD_LIMITS__ON_ERROR": "ignore", "NODEWARD_CGROUPS__PERIOD_S": "0", "NODEWARD_STATE_DIR__X": "1"}
    flags = {"limits.strict": "3", "limits.on_error": "no", "pods.wait_ms": "1"}
    told = faults(file, text, environ, flags)
    sources = {fault.partition(": ")[0]: fault.rpartition(" (")[2] for fault in told}
    assert sources == {
        "limits.mode": f"{file} line 2)",
        "limits.on_error": "flag --set limits.on_error=...)",
        "limits.strict": "flag --set limits.strict=...)",
        "nri.plugin_indx": f"{file} line 5)",
        "pods.wait_ms": "flag --set pods.wait_ms=...)",
        "pods": f"{file} line 6)",
        "cgroups.period_s": "environment NODEWARD_CGROUPS__PERIOD_S)",
        "state_dir": "environment NODEWARD_STATE_DIR__X)",
    }


def test_a_fault_in_an_address_names_the_flag_and_not_its_value() -> None:
    with pytest.raises(SettingsError, match=r"^kube\.url: .* \(flag --set kube\.url=\.\.\.\)$") as caught:
        load(None, {}, {"kube.url": "https://me:secret@x"})
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "right"),
    [
        ("NODEWARD_LIMITS_MODE", "NODEWARD_LIMITS__MODE"),
        ("NODEWARD_LIMITS_UNKNOWN_POD", "NODEWARD_LIMITS__UNKNOWN_POD"),
        ("NODEWARD_STATEDIR", "NODEWARD_STATE_DIR"),
        ("NODEWARD_WEBHOOK_PORT", "NODEWARD_WEBHOOK__PORT"),
    ],
)
def test_a_variable_that_is_a_setting_but_for_underscores_is_named(
    name: str, right: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = right.removeprefix("NODEWARD_").lower().replace("__", ".")
    sentence = f"environment {name}: is not read; for the setting {path} write {right}"
    assert (misnamed({name: "1"}), misnamed({right: "1"})) == ([sentence], [])

    file = tmp_path / "s.yaml"
    file.write_text("limits: {strict: true}\n")
    done = CliRunner().invoke(config.command, ["check", str(file)], env={name: "1"})
    assert (done.exit_code, done.stdout, done.stderr) == (0, f"{file}: no faults\n", f"warning: {sentence}\n")

    for command in (node.command, relay.command):
        caplog.clear()
        started = CliRunner().invoke(command, ["--config", str(tmp_path / "absent.yaml")], env={name: "1"})
        assert isinstance(started.exception, SettingsError)
        assert sentence in caplog.text


def test_what_services_put_into_pods_means_no_setting() -> None:
    environ = {"PATH": "/bin", "limits_mode": "off", "NODEWARD_REQUIRE_ALL": "1"}
    for service in ("NODEWARD", "NODEWARD_WEBHOOK", "NODEWARD_NODE"):
        environ |= {
            f"{service}_SERVICE_HOST": "10.0.0.1",
            f"{service}_SERVICE_PORT": "443",
            f"{service}_SERVICE_PORT_HTTPS": "443",
            f"{service}_PORT": "tcp://10.0.0.1:443",
            f"{service}_PORT_443_TCP": "tcp://10.0.0.1:443",
            f"{service}_PORT_443_TCP_PROTO": "tcp",
            f"{service}_PORT_443_TCP_PORT": "443",
            f"{service}_PORT_443_TCP_ADDR": "10.0.0.1",
        }
    assert misnamed(environ) == []
    assert from_tree({}, environ) == Settings()


@pytest.mark.parametrize("command", [node.command, webhook.command, doctor.command], ids=["node", "webhook", "doctor"])
@pytest.mark.parametrize("flag", ["limits.mode", "=enforce", ""])
def test_a_flag_without_a_value_is_refused_in_words(command: click.Command, flag: str) -> None:
    done = CliRunner().invoke(command, ["--set", flag])

    assert done.exit_code == 2
    assert f"{flag!r} is no PATH=VALUE; write for example --set limits.mode=VALUE" in done.output


@given(st.binary(max_size=300) | st.text(max_size=300).map(str.encode))
def test_any_file_is_settings_or_a_list_of_faults(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    file = tmp_path_factory.getbasetemp() / "any.yaml"
    file.write_bytes(data)
    with contextlib.suppress(SettingsError):  # and nothing else
        assert isinstance(load(str(file), {}), Settings)


@pytest.mark.parametrize(
    ("listen", "found"),
    [
        ("127.0.0.1:9743", ("127.0.0.1", 9743)),
        ("[::1]:9743", ("::1", 9743)),
        (":9743", ("", 9743)),
        ("node-1.example:0", ("node-1.example", 0)),
        ("9743", None),
        ("127.0.0.1:", None),
        ("127.0.0.1:65536", None),
        ("127.0.0.1:-1", None),
        ("::1:9743", None),
        (" :9743", None),
    ],
)
def test_an_address_to_listen_at(listen: str, found: tuple[str, int] | None) -> None:
    assert address(listen) == found
    if found is None:
        with pytest.raises(SettingsError, match=r"^metrics\.listen: "):
            from_tree({"metrics": {"listen": listen}}, {})


def test_a_plugins_name_may_have_what_a_runtime_takes() -> None:
    name = "Node.ward_2+x-y"

    assert from_tree({"nri": {"plugin_name": name}, "webhook": {"required_plugin": name}}, {}).nri.plugin_name == name


def test_a_name_that_the_runtime_gave_and_would_not_take_ends_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NRI_PLUGIN_SOCKET", "3")
    monkeypatch.setenv("NRI_PLUGIN_NAME", "a b")

    core, oci = core_with([]), OciRuntimes(Settings(), OsFiles())
    with pytest.raises(NriSettingsError, match="plugin name 'a b' may only have"):
        nri(Settings(), core, core.tell, SystemClock(), oci)


def test_a_key_that_stands_twice_is_a_fault(tmp_path: Path) -> None:
    told = faults(tmp_path / "s.yaml", "limits: {mode: observe}\nkube: {enabled: false}\nlimits: {strict: true}\n")
    assert "line 3: limits stands here again, first on line 1" in "\n".join(told)


@pytest.mark.parametrize(
    ("types", "why"),
    [
        pytest.param("[&a [x, x], &b [*a, *a], &c [*b, *b]]", "aliases (*name) are not allowed", id="aliases"),
        pytest.param("[" * 4_000, "is no YAML", id="as deep as the file is long"),
        pytest.param(f"[{'x' * (1 << 20)}]", "larger than 1048576 bytes", id="a value of a MiB"),
    ],
)
def test_a_bomb_is_refused(types: str, why: str, tmp_path: Path) -> None:
    assert why in "\n".join(faults(tmp_path / "s.yaml", f"policy: {{balloons: {{balloonTypes: {types}}}}}"))


def test_a_variable_and_a_flag_for_one_kind_of_key_leave_the_rest_of_the_shipped_kinds_as_it_is() -> None:
    found = from_tree({}, {"NODEWARD_KEYS__KINDS__TDX__SHARE": "own"}, {"keys.kinds.tdx.reserve": "2"}).keys.kinds
    shipped = Settings().keys.kinds

    assert found == {**shipped, "tdx": replace(shipped["tdx"], share=Share.OWN, reserve=2)}


def test_a_table_of_keys_is_read_and_every_fault_in_it_has_its_path() -> None:
    found = from_tree({"keys": {"mode": "observe", "kinds": {"tdx": {"resources": ["a.b/c"], "reserve": 2}}}}, {})
    assert found.keys.kinds == {"tdx": KeyKind(("a.b/c",), reserve=2)}
    assert found.engine.declared == {"a.b/c": "a.b/c", "sgx.intel.com/epc": "sgx_epc"}

    bad = {
        "tdx": {"resources": ["plain", "sgx.intel.com/epc"], "reserve": -1, "capacity": "many"},
        "t d": {"resource": []},
        "sev_es": {"resources": ["d.e/f"]},
        "sev": {"resources": ["d.e/f"]},
        "x": 3,
    }
    with pytest.raises(SettingsError) as caught:
        from_tree({"keys": {"mode": "enforce", "kinds": bad}}, {})
    assert sorted(fault.split(": ")[0] for fault in caught.value.faults) == [
        "keys.kinds.sev.resources",
        "keys.kinds.t d",
        "keys.kinds.t d.resource",
        "keys.kinds.tdx.capacity",
        "keys.kinds.tdx.reserve",
        "keys.kinds.tdx.resources",
        "keys.kinds.tdx.resources",
        "keys.kinds.x",
    ]


PUBLISHED = {
    "resources": ["devices.kubevirt.io/tdx", "tdx.intel.com/keys"],
    "publisher": "device-plugin",
    "publish": "devices.kubevirt.io/tdx",
}


@pytest.mark.parametrize(
    ("key", "row", "kube"),
    [
        pytest.param("tdx", PUBLISHED, True, id="offers"),
        pytest.param("tdx", {**PUBLISHED, "devices": ["/dev/sev", "/dev/kvm"]}, True, id="gives-devices"),
        pytest.param("tdx", {"capacity_from": "fixed", "capacity": 4}, True, id="fixed"),
        pytest.param("tdx", {"attestation": "enforce", "attestation_socket": "/run/qgs"}, True, id="asks-for-quotes"),
        pytest.param("tdx", {"share": "override"}, True, id="override"),
        pytest.param("sev_es", {"capacity_from": "nfd"}, True, id="counted-by-nfd"),
        pytest.param("tdx", {"share": "auto"}, False, id="auto-is-own-without-an-api-server"),
        pytest.param("x", {}, True, id="auto-is-own-without-a-number"),
    ],
)
def test_kinds_of_keys_that_are_accepted(key: str, row: dict[str, object], kube: bool) -> None:
    """Others are in faults.txt."""
    found = from_tree({"kube": {"enabled": kube}, "keys": {"mode": "enforce", "kinds": {key: row}}}, {})
    assert found.keys.mode is Mode.ENFORCE


def test_a_resource_may_be_limited_and_counted_as_the_same_key_and_is_not_looked_at_while_nothing_is_counted() -> None:
    """The shipped table of keys must not refuse settings from before there was `keys`."""
    for limits, mode in (("tdx", "observe"), ("sev", "off")):
        tree = {"limits": {"resources": {"tdx.intel.com/keys": limits}}, "keys": {"mode": mode}}
        assert from_tree(tree, {}).limits.resources == {"tdx.intel.com/keys": limits}


def test_the_places_of_many_typos_are_found_without_looking_at_all_for_each(tmp_path: Path) -> None:
    file = tmp_path / "s.yaml"
    file.write_text("".join(f"typo{number}: 1\n" for number in range(300)))
    tree, compared = read_yaml(str(file)), 0

    def called(_: FrameType, event: str, what: object) -> None:
        nonlocal compared
        compared += event == "c_call" and getattr(what, "__name__", "") == "startswith"

    before = sys.getprofile()
    sys.setprofile(called)
    try:
        with pytest.raises(SettingsError) as caught:
            from_tree(tree, {})
    finally:
        sys.setprofile(before)
    assert [fault.rpartition(" line ")[2] for fault in caught.value.faults] == [f"{line})" for line in range(1, 301)]
    assert compared < 300


def test_who_gives_devices_changes_with_a_restart_only() -> None:
    running, wanted = from_tree({}, {}), from_tree({"limits": {"devices": "nri", "strict": True}}, {})
    live, late = merged(running, wanted)
    assert (live.limits.devices.value, live.limits.strict, late) == ("off", True, ["limits.devices"])
