"""`kubectl nodeward` over answers of many kinds: one table, each fault with its node, and bounds on what kubectl does.

kubectl itself, a kubelet and a pod are in tests/real/test_kubectl.py. Here a program of the test's stands on PATH.
"""

import json
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner
from rich.console import Console

from nodeward.cli import kubectl_nodes as nodes
from nodeward.cli.kubectl import cli
from nodeward.cli.kubectl_answers import draw, in_json, status_of
from nodeward.model.view import CgroupRow, HappenedRow, NodeView, ResourceRow


def row(pod: str, container: str, state: str) -> CgroupRow:
    held = ResourceRow("sgx_epc", 4 << 20, 8 << 20 if state == "drift" else 4 << 20, 1 << 20, 2 << 20, 3, 3, state)
    return CgroupRow("container", "shop", pod, container, "", f"/{pod}/{container}", state, "spec", "declared", (held,))


def answer(node: str, *rows: CgroupRow, fault: str = "", said: bytes | None = None, code: int = 0) -> nodes.Answer:
    view = NodeView("enforce", "containerd", "answers", True, {}, {}, rows, ready=True)
    place = nodes.Place(node, f"nodeward-{node}", "node")
    return nodes.Answer(place, msgspec.json.encode(view) if said is None else said, code, "not so\\u001b", fault)


ANSWERS = (
    answer("node-2", row("web-10", "app", "enforced"), row("web-2", "app", "enforced")),
    answer("node-10", row("db", "main", "drift")),
    answer("node-3", fault="no answer within 10 s (--timeout)"),
    answer("node-4", said=b'{"mode":"enforce"}'),
    answer("node-5", said=b"", code=1),
)
RECORDED = """\
2 of 5 nodes answer, 1 of them need attention.
node-3: no answer: no answer within 10 s (--timeout)
node-4: no answer: an answer of another version of Nodeward: Object missing required field `runtime`
node-5: no answer: not so\\u001b
node-10: shop/db is changed by another program.
NODE     POD          CONTAINER  RESOURCE  WANTED  LIMIT  USAGE  REFUSED  STATE
node-10  shop/db      main       sgx_epc      4Mi    8Mi    1Mi        3  drift
node-2   shop/web-2   app        sgx_epc      4Mi    4Mi    1Mi        3  enforced
node-2   shop/web-10  app        sgx_epc      4Mi    4Mi    1Mi        3  enforced
"""


def test_all_nodes_are_one_table_and_each_fault_has_its_node() -> None:
    console = Console(width=120)
    with console.capture() as captured:
        console.print(draw([status_of(one, None, ()) for one in ANSWERS]))
    assert "".join(f"{line.rstrip()}\n" for line in captured.get().splitlines()) == RECORDED


def test_the_pod_with_the_most_urgent_condition_is_first_and_each_node_has_a_verdict() -> None:
    """Given a node with a drift, one where a VM was killed, and one that does not answer."""
    at = "2026-11-28T07:00:00Z"
    view = NodeView(
        "enforce", "containerd", "answers", True, {}, {}, (row("a", "app", "enforced"), row("vm", "app", "enforced"))
    )
    view = replace(view, lately=(HappenedRow("vm-killed", "shop/vm", 1, at, at),))
    told = [
        answer("n1", row("db", "main", "drift")),
        answer("n2", said=msgspec.json.encode(view)),
        answer("n3", fault="no"),
    ]
    found = [status_of(one, None, ()) for one in told]
    console = Console(width=120)
    with console.capture() as captured:
        console.print(draw(found))

    lines = captured.get().splitlines()
    assert [line.split()[1] for line in lines[lines.index(next(one for one in lines if one[:4] == "NODE")) + 1 :]] == [
        "shop/vm", "shop/db", "shop/a",
    ]  # fmt: skip
    verdicts = [one["verdict"]["conditions"][0]["code"] for one in json.loads(in_json(found))["nodes"]]
    assert verdicts == ["drift", "vm-killed", "daemon-away"]


def pods(*phases: tuple[str, str, str | None]) -> str:
    """Pods of Nodeward: node, phase, and when it was deleted."""
    container = {"name": "node", "args": ["node", "--config", "/etc/n.yaml"]}
    return json.dumps(
        {
            "items": [
                {
                    "metadata": {"name": f"pod-{place}", "namespace": "nodeward", "deletionTimestamp": deleted},
                    "spec": {"nodeName": node, "containers": [container]},
                    "status": {"phase": phase},
                }
                for place, (node, phase, deleted) in enumerate(phases)
            ]
        }
    )


def asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, *words: str) -> tuple[int, str, str]:
    """Exit code and output with this shell script as kubectl."""
    program = tmp_path / "kubectl"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    done = CliRunner().invoke(cli, words)
    said = f"{done.exception}" if isinstance(done.exception, nodes.KubectlError) else done.stderr
    return done.exit_code, done.stdout, said


EXEC = 'case " $* " in *" get "*) cat "$(dirname "$0")/pods" ;; *) {} ;; esac'


@pytest.mark.parametrize(
    ("exec_", "fault"),
    [
        pytest.param("sleep 60", "no answer within 0.5 s (--timeout)", id="hangs"),
        pytest.param("yes", "the answer is longer than", id="never ends"),
        pytest.param("echo 'Error: gone' >&2; exit 1", "Error: gone", id="is refused"),
        pytest.param("printf 'command terminated with exit code 2\\n' >&2; exit 2", "exit code 2", id="says no more"),
        pytest.param("printf '\\377\\0'", "an answer of another version", id="is no text"),
    ],
)
def test_a_node_whose_exec_fails_is_a_fault_of_that_node(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, exec_: str, fault: str
) -> None:
    monkeypatch.setattr(nodes, "MAX_ANSWER", 1 << 20)
    (tmp_path / "pods").write_text(pods(("a", "Running", None)))
    timeout = "0.5" if exec_.startswith("sleep") else "30"
    code, said, _ = asked(tmp_path, monkeypatch, EXEC.format(exec_), "status", "--timeout", timeout, "-o", "json")
    (one,) = json.loads(said)["nodes"]
    assert (code, one["node"], fault in one["fault"]) == (1, "a", True), one


def test_of_two_pods_on_a_node_the_one_that_runs_is_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = pods(
        ("b-10", "Running", None), ("b-2", "Pending", None), ("b-2", "Running", None), ("b-2", "Running", "now")
    )
    (tmp_path / "pods").write_text(found)
    script = EXEC.format('echo "$*" > "$(dirname "$0")/asked-$5"; echo \'{"worst":"note","findings":[]}\'')
    words = ("doctor", "--context", "c", "-o", "json")
    code, said, _ = asked(tmp_path, monkeypatch, script, *words)
    assert [one["pod"] for one in json.loads(said)["nodes"]] == ["pod-2", "pod-0"]
    assert code == 0
    line = "--context=c exec -n nodeward pod-2 -c node -- nodeward doctor -o json --config /etc/n.yaml"
    assert (tmp_path / "asked-pod-2").read_text().strip() == line


@pytest.mark.parametrize(
    ("script", "words", "why"),
    [
        pytest.param("echo refused >&2; exit 1", ["status"], "kubectl get pods: refused", id="no API server"),
        pytest.param("echo '{\"items\":[]}'", ["status"], "no pod of Nodeward with the label", id="not installed"),
        pytest.param("echo []", ["status"], "what kubectl prints is no pod", id="no list"),
        pytest.param("exit 0", ["explain", "--", "--all"], "'--all' is no name of a pod", id="no name"),
        pytest.param("exit 0", ["explain", "a/b/c/d"], "is no POD[/CONTAINER]", id="too many slashes"),
        pytest.param(
            'echo \'{"metadata":{"name":"p","namespace":"s"},"spec":{}}\'',
            ["explain", "p"],
            "pod s/p is on no node yet",
            id="no node",
        ),
    ],
)
def test_what_cannot_be_asked_is_said_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, words: list[str], why: str
) -> None:
    code, _, said = asked(tmp_path, monkeypatch, script, *words)
    assert code != 0
    assert why in said
