"""CRI Resource Manager's command lines, of both generations, in our words."""

from collections.abc import Mapping
from signal import SIGHUP, SIGUSR2, SIGWINCH, Signals
from types import MappingProxyType

import pytest
import yaml

from nodeward.features.cpus.pool_settings import BalloonType
from nodeward.features.settings import Settings
from nodeward.neighbours.cri import dump_rules
from nodeward.programs.cri_resmgr import read
from nodeward.programs.cri_resmgr.read import CONFIG_SOCKET, CommandLine, CriResmgrError
from nodeward.settings.load import SettingsError, from_tree, load

CONTAINERD = read.RUNTIMES[1]


def choose(
    line: str,
    files: dict[str, str] | None = None,
    sockets: tuple[str, ...] = (CONTAINERD,),
    environ: Mapping[str, str] = MappingProxyType({}),
) -> CommandLine:
    return read.choose(line.split(), environ, (files or {}).__getitem__, sockets.__contains__)


def said(config: str) -> list[str]:
    """What is said of a YAML configuration, but for the runtime's socket."""
    return [note for note in choose("-force-config /c", {"/c": config}).notes if not note.startswith("no --runtime")]


@pytest.mark.parametrize(
    ("sockets", "said"),
    [
        ((CONTAINERD, read.RUNTIMES[0]), f"{read.RUNTIMES[0]} is there"),
        (read.RUNTIMES[2:], f"{read.RUNTIMES[2]} is there"),
        ((), f"{CONTAINERD} is waited for; none of {', '.join(read.RUNTIMES)} is there"),
    ],
)
def test_without_a_runtime_the_first_that_is_there_is_taken_and_said(sockets: tuple[str, ...], said: str) -> None:
    assert choose("", sockets=sockets).notes == [f"no --runtime-socket: {said}"]


def test_a_file_of_either_generation_is_told_by_its_content_and_stands_in_its_place() -> None:
    files = {"/old": "policy = none\ndump = reset\n  file = /a\n", "/new": "dump: {File: /b}\n"}
    assert choose("-dump-file /x -config /old", files).pairs["dump.file"] == "/a"
    assert choose("-config /old -dump-file /x", files).pairs["dump.file"] == "/x"
    plain = {"/old": "policy static\nreserved-resources cpu=1\ndump full:.*\n"}
    assert choose("-config /old", plain).pairs["policy.active"] == "static"
    assert choose("-config /old -config /new", files).pairs["dump.file"] == "/b"
    assert choose("-config /old -dump full:.*", files).pairs["dump.rules"] == "reset,full:.*"


def test_a_yaml_file_that_begins_as_documents_of_yaml_do_is_one() -> None:
    assert choose("-config /c", {"/c": "---\ndump:\n  File: /b\n"}).pairs["dump.file"] == "/b"


def test_images_of_another_service_have_a_socket_of_their_own() -> None:
    chosen = choose("--image-socket /run/images.sock")
    assert chosen.pairs["relay.image"] == "/run/images.sock"
    assert chosen.pairs["relay.image_listen"] == "/var/run/cri-resmgr/cri-resmgr-image.sock"
    assert any("point kubelet's image service at" in note for note in chosen.notes)
    assert any("answered by the runtime" in note for note in choose("--image-socket -").notes)


BAD = {
    "/static": "policy: {static: {Relaxed: true}}",
    "/merge": "policy:\n  <<: {Active: static}\n",
    "/alias": "policy: &a {Active: none}\ndump: *a\n",
    "/amount": "policy: {ReservedResources: [2]}",
    "/bad": "dump: {",
    "/list": "[a: b]",
    "/name": "policy: {Actve: none}",
    "/klog": "logger: {Klog: {logtostder: true}}",
    "/yes": "dump: {Disabled: perhaps}",
    "/scalar": "dump: full",
    "/off": "logger: {Debug: off}",
    "/count": "dump: {Config: 'full:.*,count:Version'}",
    "/list-of-klog": "logger: {Klog: {v: [5]}}",
    "/object": "apiVersion: v1\nkind: ConfigMap\ndata: {policy: 'Active: none'}",
}


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("-policy memtier", "'memtier' comes with a later version of Nodeward; cri-resmgr -list-policies names those"),
        ("-reserved-resources 2", "--reserved-resources: '2' is no domain=amount, such as cpu=1 (command line)"),
        ("-force-config /static", "/static policy.static: Relaxed is not known; did you mean RelaxedIsolation?"),
        ("-force-config /amount", "/amount policy.ReservedResources: has no names with values"),
        ("-dumpfile /x", "did you mean --dump-file?"),
        ("-logger-level loud", "'loud' is none of debug, info, warn"),
        ("-dump-file cri.dump", "'cri.dump' is no absolute path"),
        ("topology-aware", "is no option"),
        ("-config /bad", "is no YAML"),
        ("-force-config /c -fallback-config /d", "--force-config /c and --fallback-config /d: give one of them, not b"),
        ("-force-config /name", "/name: policy.Actve is not known; did you mean policy.Active?"),
        ("-force-config /klog", "/klog logger.Klog: logtostder is not known; did you mean logtostderr?"),
        ("-force-config /yes", "/yes dump.Disabled: 'perhaps' is neither true nor false"),
        ("-force-config /object", "/object: is an object of Kubernetes: give what stands below data"),
        ("-force-config /scalar", "/scalar dump: has no names with values"),
        ("-force-config /off", "/off logger.Debug: False is no text such as on:cache,off:relay"),
        ("-force-config /count", "dump rule 'count:Version': 'count' is no level; write off, short or full before the"),
        ("-force-config /list-of-klog", "/list-of-klog logger.Klog.v: holds other values, where one text is wanted"),
        ("-logger-debug maybe:cache", "--logger-debug: 'maybe' is neither on nor off (command line)"),
        ("-v loud", "--v: 'loud' is no whole number (command line)"),
        ("-force-config-signal USR2", "'USR2' is no signal; write SIGHUP, SIGUSR2 or SIGWINCH (command line)"),
        ("-logtostderr=perhaps", "option --logtostderr: 'perhaps' is neither true nor false"),
        ("-force-config /merge", "merge keys (<<) are not allowed"),
        ("-force-config /alias", "aliases (*name) are not allowed"),
        ("-config /list", "is neither a file of `option = value` lines nor YAML"),
    ],
)
def test_what_cannot_be_followed_is_refused_with_option_and_remedy(line: str, said: str) -> None:
    with pytest.raises(CriResmgrError) as raised:
        choose(line, BAD)
    assert said in str(raised.value)


@pytest.mark.parametrize(
    ("line", "asked"),
    [
        ("help", "help"),
        ("--version=true", "version"),
        ("-version=false", ""),
        ("--reset-config --reset-policy", "reset"),
        ("--reset-policy=false", ""),
    ],
)
def test_what_is_only_asked(line: str, asked: str) -> None:
    assert choose(line).asked == asked


KLOG_SWITCHES = "logtostderr alsologtostderr skip_headers skip_log_headers add_dir_header one_output"
KLOG_WORDS = "v vmodule stderrthreshold log_dir log_file log_file_max_size log_backtrace_at"
SOCKETS = "runtime-socket image-socket relay-socket relay-dir agent-socket config-socket"
LATER_SWITCHES = "list-policies version reset-policy disable-ui print-config"
LATER_WORDS = "fallback-config force-config force-config-signal metrics-interval rebalance-interval cgroup-path"
LATER_WORDS += f" external-visualizers bpf-install-path {SOCKETS}"
RELEASES: dict[str, tuple[str, str]] = {
    "v0.1.0": (
        "list-policies version list-loggers no-rdt static-policy-relaxed-isolation cpu-allocator-debug "
        "static-pools-create-cmk-node-label static-pools-create-cmk-node-taint",
        "policy config dump dump-file count-period reserved-resources available-resources logger logger-level "
        "logger-source logger-debug logger-prefix resctrl-path static-pools-conf-file static-pools-conf-dir "
        "topology-aware-pin-cpu topology-aware-pin-memory topology-aware-prefer-isolated-cpus "
        "topology-aware-prefer-shared-cpus topology-aware-fake-hint trace trace-jaeger-collector trace-jaeger-agent "
        f"trace-prometheus-metrics {SOCKETS}",
    ),
    "v0.3.1": (
        f"allow-policy-switch static-pools-create-cmk-node-label static-pools-create-cmk-node-taint {LATER_SWITCHES}",
        "logger logger-level logger-sources logger-debug static-pools-conf-file static-pools-conf-dir cgroupv2-path "
        + LATER_WORDS,
    ),
    "v0.9.2": (
        f"reset-config disable-policy-switch allow-untested-runtimes {LATER_SWITCHES} {KLOG_SWITCHES}",
        f"host-root pid-file cgroup-mount cgroup-v2-dir kubelet-cgroup-root {LATER_WORDS} {KLOG_WORDS}",
    ),
}
"""The options of a release's `cri-resmgr`, switches first: what its sources register with Go's flag package."""
VALUES = {"logger-level": "debug", "v": "5", "force-config-signal": "SIGUSR2", "policy": "static"}
VALUES |= {"reserved-resources": "cpu=1", "available-resources": "cpu=0-3"}


@pytest.mark.parametrize(
    ("name", "switch"),
    [
        pytest.param(name, switch, id=f"{release}-{name}")
        for release, (switches, words) in RELEASES.items()
        for names, switch in ((switches, True), (words, False))
        for name in names.split()
    ],
)
def test_every_option_of_a_release_is_served_or_remarked_on(name: str, switch: bool) -> None:
    """As Go takes it: a switch alone or with `=`, any other with its value in either way."""
    value = VALUES.get(name, "/x")
    for line in (f"-{name}", f"--{name}=true") if switch else (f"-{name} {value}", f"--{name}={value}"):
        chosen = choose(line, {"/x": "dump: {File: /d}"})
        assert chosen != choose("")
        assert len([note for note in chosen.notes if note.startswith(f"--{name}:")]) <= 1


LEVELS: tuple[tuple[str, str, str], ...] = (
    ("-logger-debug cache", "", "debug"),
    ("-logger-debug on:cache,off:*", "", "debug"),
    ("-logger-debug off:cache,relay", "", "info"),
    ("-logger-debug off:a,on:b", "", "debug"),
    ("-logger-debug none", "", "info"),
    ("-logger-debug=", "", "info"),
    ("-logger-debug all:false", "", "info"),
    ("-logger-debug none:false", "", "debug"),
    ("-logger-debug cache -logger-debug all:false", "", "info"),
    ("-logger-level debug -logger-debug off:*", "", "debug"),
    ("-logger-level Warning", "", "warning"),
    ("-logger-level panic", "", "error"),
    ("-v 4", "", "debug"),
    ("-v=3", "", "info"),
    ("-v=9 --v=0", "", "info"),
    ("", "LOGGER_DEBUG=", "info"),
    ("", "LOGGER_DEBUG=off:cache", "info"),
    ("", "LOGGER_DEBUG=cache", "debug"),
    ("-logger-debug off:cache", "LOGGER_DEBUG=cache", "info"),
    ("", "LOGGER_V=4", "debug"),
    ("-v 0", "LOGGER_V=4", "info"),
    ("-force-config /c", "Debug: 'off:*'", "info"),
    ("-force-config /c", "Debug: {off: [cache], on: [relay]}", "debug"),
    ("-force-config /c", "Debug:", "info"),
    ("-force-config /c", "Level: warning", "warning"),
    ("-force-config /c", "Klog: {v: 4}", "debug"),
    ("-force-config /c", "Klog: {v: 1, logtostderr: true}", "info"),
)
"""A command line, a variable or what a file has below `logger`, and the level of the log."""


@pytest.mark.parametrize(("line", "more", "level"), LEVELS)
def test_the_level_of_the_log_by_option_environment_and_file(line: str, more: str, level: str) -> None:
    name, _, value = more.partition("=")
    environ = {name: value} if (value and name.isupper()) or more.endswith("=") else {}
    assert choose(line, {"/c": f"logger: {{{more}}}"}, environ=environ).log_level == level


@pytest.mark.parametrize(
    ("variable", "value", "why"),
    [
        ("LOGGER_DEBUG", "maybe:cache", "--logger-debug: 'maybe' is neither on nor off"),
        ("LOGGER_V", "", "--v: '' is no whole number"),
    ],
)
def test_a_variable_that_cannot_be_read_is_told_and_ignored(variable: str, value: str, why: str) -> None:
    chosen = choose("-runtime-socket /r", environ={variable: value})
    assert (chosen.log_level, chosen.notes) == ("info", [f"{why} ({variable} in the environment): ignored"])


@pytest.mark.parametrize(
    ("line", "number", "notes"),
    [
        ("", SIGHUP, 0),
        ("--force-config-signal SIGUSR2", SIGUSR2, 0),
        ("--force-config-signal=SIGWINCH", SIGWINCH, 0),
        ("--force-config-signal=disable", SIGHUP, 1),
        ("--force-config-signal=", SIGHUP, 1),
        ("--force-config-signal SIGUSR1", SIGHUP, 1),
    ],
)
def test_which_signal_reads_the_files_again(line: str, number: Signals, notes: int) -> None:
    chosen = choose(line)
    said = [note for note in chosen.notes if "reads no file again here; SIGHUP does" in note]
    assert (chosen.reload_by, len(said)) == (number, notes)


DUMPED = {
    "rules-of-the-option": ("-dump name:.*List.* -dump-file /d", ("OFF", "FULL", "NAME")),
    "the-options-defaults-hold-below": ("-dump full:.* -dump-file /d", ("OFF", "FULL", "FULL")),
    "reset-forgets-them": ("-dump reset,full:.* -dump-file /d", ("FULL", "FULL", "FULL")),
    "a-file-of-options": ("-config /lines", ("OFF", "FULL", "NAME")),
    "without-rules-the-options-defaults": ("-dump-file /d", ("OFF", "FULL", "OFF")),
    "rules-of-yaml": ("-force-config /yaml", ("OFF", "OFF", "NAME")),
    "words-of-the-option-mean-nothing-in-yaml": ("-force-config /words", ("FULL", "OFF", "OFF")),
    "without-rules-yamls-defaults": ("-force-config /bare", ("OFF", "NAME", "OFF")),
    "without-rules-those-of-who-named-the-file-last": ("-force-config /bare -dump-file /e", ("OFF", "FULL", "OFF")),
    "yaml-takes-the-options-place": ("-dump full:.* -force-config /yaml", ("OFF", "OFF", "NAME")),
    "and-the-option-yamls": ("-force-config /yaml -dump full:Version", ("FULL", "FULL", "OFF")),
}
"""A command line, and how much it shows of Version, CreateContainer and ListContainers."""
DUMP_FILES = {
    "/lines": "dump = name:.*List.*\n  file = /d\n",
    "/yaml": "dump: {File: /d, Config: 'name:.*List.*'}",
    "/words": "dump: {File: /d, Config: 'reset,full:Version,disable'}",
    "/bare": "dump: {File: /d}",
}


@pytest.mark.parametrize(("line", "levels"), DUMPED.values(), ids=DUMPED)
def test_rules_and_defaults_of_a_dump_are_those_of_the_options_generation(line: str, levels: tuple[str, ...]) -> None:
    rules = dump_rules.parse(choose(line, DUMP_FILES).pairs["dump.rules"])
    assert tuple(rules.level(name).name for name in ("Version", "CreateContainer", "ListContainers")) == levels


def test_rules_in_the_environment_are_not_overruled_by_defaults() -> None:
    environ = {"NODEWARD_DUMP__RULES": "short:.*"}
    chosen = read.choose(["-dump-file", "/d"], environ, DUMP_FILES.__getitem__, bool)
    assert "dump.rules" not in chosen.pairs


def test_a_configuration_that_is_not_named_is_none() -> None:
    assert choose("-force-config= -fallback-config=/c", {"/c": "dump: {File: /d}"}).pairs["dump.file"] == "/d"
    assert choose("-force-config=").pairs == choose("").pairs
    assert choose("-force-config /c", {"/c": "dump: {File: ''}\nlogger:\n"}).pairs["dump.file"] == ""


def test_where_cgroups_are_is_taken_over() -> None:
    pairs = choose("--cgroup-mount /host/cgroup --kubelet-cgroup-root /kube").pairs
    assert (pairs["cgroups.root"], pairs["cgroups.kubelet_root"]) == ("/host/cgroup", "/kube")
    assert choose("--kubelet-cgroup-root=").pairs["cgroups.kubelet_root"] == "/"


STATIC = {
    "policy.active": "static",
    "policy.reserved": "1",
    "policy.available": "0-3,6",
    "policy.static.relaxed_isolation": "true",
    "cpus.driver": "relay",
    **read._DAEMON,
}


@pytest.mark.parametrize(
    "line",
    [
        "-policy static -reserved-resources cpu=1 -available-resources cpu=0-3,6 -static-policy-relaxed-isolation",
        "-config /lines",
        "--force-config /yaml",
        "-policy none -force-config /yaml",
    ],
)
def test_a_policy_is_carried_by_the_relay_whoever_chose_it(line: str) -> None:
    files = {
        "/lines": "policy = static\nreserved-resources = cpu=1\navailable-resources = cpu=0-3,6\n"
        "static-policy-relaxed-isolation\n",
        "/yaml": "policy: {Active: static, ReservedResources: {CPU: 1}, AvailableResources: {CPU: '0-3,6'}, "
        "static: {RelaxedIsolation: true}}",
    }
    chosen = choose(line, files)

    assert {path: value for path, value in chosen.pairs.items() if not path.startswith(("relay.", "agent."))} == STATIC
    assert load(None, {}, chosen.pairs).policy.active == "static"
    assert loaded(chosen.as_file()) == load(None, {}, chosen.pairs)


def test_an_agents_configurations_are_taken_by_default_but_for_who_asks_for_none() -> None:
    served = {"agent.config_socket": CONFIG_SOCKET, "cpus.driver": "relay"}
    for line in ("", "-policy static", "-fallback-config /c"):
        assert choose(line, {"/c": "policy: {Active: static}"}).pairs.items() >= served.items()
    for line in ("-policy null", "-force-config /c", "-config-socket disabled"):
        assert "agent.config_socket" not in choose(line, {"/c": "policy: {Active: static}"}).pairs
    assert "cpus.driver" not in choose("", environ={"NODEWARD_CPUS__DRIVER": "nri"}).pairs


def loaded(text: str) -> Settings:
    tree = yaml.safe_load(text)
    assert isinstance(tree, dict)
    return from_tree(tree, {})


def test_what_a_policys_configuration_has_in_vain_is_said() -> None:
    config = "policy: {Active: static, static: {Rdt: auto, Options: {full-pcpus-only: true}}, static-plus: {}}"
    assert choose("-force-config /c", {"/c": config}).pairs["policy.static.options.full-pcpus-only"] == "true"
    assert [line.partition(" (")[0] for line in said(config)] == [
        "policy.static.Rdt: has no meaning here: the policy never used it",
        "policy.static-plus: has no meaning here: the policy has no settings",
    ]
    (note,) = choose("-runtime-socket /r -reserved-resources cpu=1,memory=2G").notes
    assert note == "--reserved-resources: 'memory' has no meaning here: policies divide CPUs (command line)"


def test_a_dump_that_is_disabled_has_no_rule_and_what_comes_with_a_later_version_is_said() -> None:
    config = "policy: {Active: none, memtier: {}}\nrdt: {}\ndump: {Disabled: true, Config: 'full:.*', File: /d}\n"
    rules = dump_rules.parse(choose("-force-config /c", {"/c": config}).pairs["dump.rules"])
    assert rules.level("Version").name == "OFF"
    notes = said(config)
    for about in ("policy.memtier: comes with", "rdt: comes with", "dump.Disabled: nothing is dumped"):
        assert len([note for note in notes if note.startswith(about)]) == 1, notes


def test_values_that_yaml_would_take_for_others_are_quoted_in_the_file_for_the_relay() -> None:
    chosen = choose("-image-socket /x -logger-level warn")
    chosen.pairs |= {"dump.file": "/tmp/#1: yes", "relay.image": "/x y"}
    chosen.pid_file = "/p\n- q"
    head = [
        "# For nodeward relay --config FILE --log-level warning",
        "# Without the file of its process id: /p\\u000a- q",
    ]
    assert chosen.as_file().splitlines()[:2] == head
    found = loaded(chosen.as_file())
    assert (found.dump.file, found.relay.image) == ("/tmp/#1: yes", "/x y")
    assert found.relay.listen == "/var/run/cri-resmgr/cri-resmgr.sock"


def test_an_amount_that_is_none_names_the_option_and_the_module() -> None:
    with pytest.raises(
        SettingsError, match=r"^policy\.reserved: 'x' is no amount .* \(by --reserved-resources, or Res"
    ):
        load(None, {}, choose("-policy static -reserved-resources cpu=x").pairs, read.GIVEN_BY)


def test_the_section_of_a_policy_with_pools_is_taken_as_it_is() -> None:
    config = (
        "policy: {Active: balloons, ReservedResources: {CPU: 1}, balloons: {BalloonTypes: [{Name: a, MinCPUs: 2}]}}"
    )
    chosen = choose("-force-config /c", {"/c": config})
    settings = from_tree({}, {}, chosen.pairs)
    assert settings.policy.balloons.balloon_types == (BalloonType("a", min_cpus=2),)
    assert from_tree(yaml.safe_load(chosen.as_file()), {}) == settings
