"""The page "Add a feature" is true: its folder, dropped into a copy of the source, is a whole feature."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from tests.patience import scaled

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "architecture.md").read_text()
FILES = re.findall(r"```python\n# (\w+\.py)\n(.*?)```", PAGE, re.DOTALL)
EDITS = [part.split("\n", 1) for part in PAGE.split("```diff\n")[1].split("```")[0].split("--- ")[1:]]
NODE = """
import sys
from pathlib import Path

from nodeward.core import events as ev
from nodeward.core.decision import Target
from nodeward.core.workload import Container, ContainerId, Phase, PodUid, Sandbox, SandboxId
from nodeward.features.all import ENGINE, FEATURES
from nodeward.features.root import State
from nodeward.host.hostfs import OsFiles
from nodeward.neighbours.cgroups.hierarchy import Tree
from nodeward.people.doctor.facts import Facts
from nodeward.people.doctor.findings import findings
from nodeward.people.metrics.exposition import pieces
from nodeward.people.metrics.mapping import FAMILIES, metrics
from nodeward.people.view import node_view
from nodeward.programs.node.assemble import WIRINGS
from nodeward.settings.load import load

folder = Path(sys.argv[1])
(folder / "nodeward.yaml").write_text("idle: {namespaces: [batch]}\\n")
state = State(settings=load(str(folder / "nodeward.yaml"), {}).engine)
sandbox = Sandbox(SandboxId("s"), PodUid("u"), "batch", "pod")
container = Container(ContainerId("c"), SandboxId("s"), "app", Phase.RUNNING, cgroups_path="/c")
target = Target("cpu.idle", "/c")


def told(event):
    global state
    state, decision = ENGINE.apply(state, event)
    assert decision.faults == (), decision.faults
    return decision


def shown():
    view = node_view(state, 0, {})
    text = b"".join(pieces(metrics(view))).decode()
    (line,) = (one for one in text.splitlines() if one.startswith("nodeward_idle_containers "))
    return view.idle, line, [one.code for one in findings(Facts(view=view)) if one.where == "idle.namespaces"]


print(shown())
(goal,) = (one for one in told(ev.Started(sandbox, container, seq=1)).goals if one.target == target)
(folder / "c").mkdir()
(folder / "c" / "cpu.idle").write_text("0\\n")
files = OsFiles()
performers = [one.performers(files, Tree(files, str(folder)), print) for one in WIRINGS]
(perform,) = (by_kind["cpu.idle"] for by_kind in performers if "cpu.idle" in by_kind)
assert perform(target, goal, False).wrote
print((folder / "c" / "cpu.idle").read_text().strip())
told(ev.Reached((target,), (target,), seq=2))
print(shown())
print(told(ev.Stopped(sandbox, container, seq=3)).forget)
assert any(one.name == "nodeward_idle_containers" for one in FAMILIES)
"""


def test_the_folder_of_the_page_is_a_feature_with_a_setting_a_row_a_metric_and_a_finding(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "src", tmp_path / "src", ignore=shutil.ignore_patterns("*.pyc"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    folder = tmp_path / "src" / "nodeward" / "features" / "idle"
    folder.mkdir()
    (folder / "__init__.py").touch()
    for name, text in FILES:
        (folder / name).write_text(text)
    lines = [line for name, body in EDITS for line in _edit(tmp_path / name, body)]

    assert len(lines) <= 7, lines
    assert len({name for name, _ in EDITS}) <= 7
    linted = _run(tmp_path, str(Path(sys.executable).with_name("lint-imports")), "--no-cache")
    assert linted.returncode == 0, linted.stdout
    ran = _run(tmp_path, sys.executable, "-c", NODE, str(tmp_path))
    assert ran.stdout.splitlines() == [
        "(IdleView(reached=0, wanted=0), 'nodeward_idle_containers 0', ['idle-nobody'])",
        "1",
        "(IdleView(reached=1, wanted=1), 'nodeward_idle_containers 1', [])",
        "(Target(kind='cpu.idle', where='/c', resource=''),)",
    ], ran.stderr


def _run(folder: Path, *command: str) -> subprocess.CompletedProcess[str]:
    environ = {**os.environ, "PYTHONPATH": str(folder / "src")}
    return subprocess.run(command, cwd=folder, env=environ, capture_output=True, text=True, timeout=scaled(60.0))


def _edit(file: Path, body: str) -> list[str]:
    """The lines that are added to the file, imports apart; its lines around them must be there, once."""
    lines = body.splitlines()
    before = "\n".join(line[1:] for line in lines if not line.startswith("+"))
    after = "\n".join(line[1:] for line in lines if not line.startswith("-"))
    text = file.read_text()
    assert text.count(before) == 1, f"{file.name}: {before}"
    file.write_text(text.replace(before, after))
    return [line for line in lines if line.startswith("+") and " import " not in line]
