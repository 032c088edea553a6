"""What puts the OCI hook into containers: the shapes that runtimes demand, and a base spec that keeps all else."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from nodeward.cli.main import cli
from nodeward.core.errors import WireError
from nodeward.neighbours.hook.install import Hook, base_spec, cdi, containerd_lines, hooks_d

HOOK = Hook("/opt/nodeward/bin/nodeward-oci-hook", ("--on-error", "pass", "--folder", "/run/nodeward"))
ENTRY = {
    "path": "/opt/nodeward/bin/nodeward-oci-hook",
    "args": ["nodeward-oci-hook", "--on-error", "pass", "--folder", "/run/nodeward"],
    "timeout": 10,
}
DEFAULT = {"ociVersion": "1.3.0", "mounts": [{"destination": "/proc"}], "process": {"rlimits": []}}


def test_the_shipped_hooks_d_file_is_what_is_printed() -> None:
    shipped = Path(__file__).parents[3] / "deploy/hooks.d/50-nodeward.json"

    assert shipped.read_bytes() == hooks_d(HOOK)
    assert json.loads(hooks_d(HOOK)) == {
        "version": "1.0.0",
        "hook": ENTRY,
        "when": {"always": True},
        "stages": ["createRuntime"],
    }


def test_a_cdi_device_brings_the_hook() -> None:
    device = {"name": "limit", "containerEdits": {"hooks": [{"hookName": "createRuntime", **ENTRY}]}}

    assert json.loads(cdi(HOOK)) == {"cdiVersion": "0.5.0", "kind": "nodeward.io/epc", "devices": [device]}


def test_a_base_spec_keeps_what_the_runtime_has_and_other_hooks() -> None:
    other = {"path": "/other", "args": ["other"]}
    default = DEFAULT | {"hooks": {"createRuntime": [other], "poststop": [other]}}
    made = json.loads(base_spec(json.dumps(default).encode(), HOOK))

    assert made == DEFAULT | {"hooks": {"createRuntime": [other, ENTRY], "poststop": [other]}}


def test_an_earlier_hook_of_ours_is_replaced() -> None:
    once = base_spec(json.dumps(DEFAULT).encode(), Hook("/old/nodeward-oci-hook"))

    assert json.loads(base_spec(once, HOOK))["hooks"] == {"createRuntime": [ENTRY]}


@pytest.mark.parametrize(
    ("default", "says"),
    [
        (b"", "nothing came on stdin"),
        (b"[" * 100_000, "is no JSON"),
        (b"[]", "no ociVersion or mounts"),
        (b'{"ociVersion":"1.0.2","process":{}}', "no ociVersion or mounts"),
        (b'{"ociVersion":"1.0.2","mounts":[],"hooks":[]}', "hooks.createRuntime is no list"),
        (b'{"ociVersion":"1.0.2","mounts":[],"hooks":{"createRuntime":{}}}', "hooks.createRuntime is no list"),
        (b" " * (8 * 1024 * 1024 + 1), "more than"),
    ],
    ids=["empty", "deep", "list", "without mounts", "hooks as list", "stage as table", "huge"],
)
def test_what_is_no_default_spec_is_refused(default: bytes, says: str) -> None:
    """A base spec takes the place of containerd's own: half of one would break every container."""
    with pytest.raises(WireError, match=says):
        base_spec(default, HOOK)


def test_containerds_lines_for_both_generations() -> None:
    assert containerd_lines("/etc/base.json", "runc", 3).splitlines() == [
        "[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc]",
        '  base_runtime_spec = "/etc/base.json"',
        '  pod_annotations = ["nodeward.io/limits", "epc-limit.nri.io", "epc-limit.nri.io/*"]',
    ]
    assert containerd_lines("/b", "x", 2).startswith("[plugins.'io.containerd.grpc.v1.cri'.containerd.runtimes.x]\n")


@pytest.mark.parametrize(
    "words",
    [["hook", "hooks-d"], ["hook", "base-spec"], ["cdi"], ["hook", "containerd-config"]],
    ids=lambda words: " ".join(words),
)
def test_the_commands_print_the_same(words: list[str]) -> None:
    options = ["--version", "2", "--spec", "/b"] if words[-1] == "containerd-config" else ["--hook", HOOK.path]
    done = CliRunner().invoke(cli, ["setup", *words, *options], input=json.dumps(DEFAULT))
    made = {"hooks-d": hooks_d(HOOK), "base-spec": base_spec(json.dumps(DEFAULT).encode(), HOOK), "cdi": cdi(HOOK)}
    made["containerd-config"] = containerd_lines("/b", "runc", 2).encode()

    assert (done.exit_code, done.stdout) == (0, made[words[-1]].decode())


def test_a_hook_that_is_no_absolute_path_is_refused() -> None:
    done = CliRunner().invoke(cli, ["setup", "hook", "hooks-d", "--hook", "nodeward-oci-hook"])

    assert done.exit_code == 2
    assert "is no absolute path to the hook; give --hook" in done.output
