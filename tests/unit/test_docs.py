"""The documents are true of the code: paths exist, settings and commands are described, the example is accepted.

A document that a test does not hold to the code is out of date within a month. What is compared here are names; whether
a sentence is right, only a reader can tell.
"""

import ast
import dataclasses
import json
import re
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import ModuleType

import pytest
import yaml

from nodeward.cli.main import COMMANDS
from nodeward.core.conditions import CODES
from nodeward.core.workload import SandboxId
from nodeward.features.cpus.spelling import pools
from nodeward.features.keys.settings import KeyKind, KeysSettings
from nodeward.features.limits.rows import Standing
from nodeward.features.sandboxes.values import Fit
from nodeward.features.sandboxes.words import DEFAULTS, OPTIONS
from nodeward.features.settings import Settings
from nodeward.neighbours.kata import shim_socket
from nodeward.neighbours.kata.config_file import DEFAULTS_GO, DEFAULTS_RS
from nodeward.neighbours.kata.network import CNI, DANS
from nodeward.people.metrics.mapping import FAMILIES
from nodeward.settings import load as loader
from tests.patience import scaled

ROOT = Path(__file__).resolve().parents[2]
DOCUMENTS = (
    *("README.md", "SECURITY.md", "CONTRIBUTING.md", "CHANGELOG.md"),
    *sorted(f"docs/{path.name}" for path in (ROOT / "docs").glob("*.md")),
)
TABLES = ("limits.resources", "keys.kinds", "policy.static.options", "sandboxes.profiles", "gate.handlers")
"""Settings that are tables: their keys are the operator's."""


def _script(name: str) -> ModuleType:
    """A program of the folder scripts, as a module."""
    module = ModuleType(name)
    module.__file__ = str(ROOT / "scripts" / name)
    SourceFileLoader(name, module.__file__).exec_module(module)
    return module


SETTINGS_PAGE = _script("generate-settings-page")


def text(path: str) -> str:
    return (ROOT / path).read_text(encoding="utf-8")


@pytest.mark.parametrize("document", DOCUMENTS)
def test_a_path_that_a_document_names_exists(document: str) -> None:
    named = re.findall(r"`((?:src|tests|docs|deploy|scripts|bench)/[\w./-]+)`", text(document))

    assert [path for path in named if not (ROOT / path).exists()] == []


def anchors(document: Path) -> set[str]:
    """Of every heading, as a forge makes them, and those that the page has itself; in fenced blocks there is none."""
    lines = re.sub(r"^```.*?^```", "", document.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    heads = re.findall(r"^#+ (.+)$", lines, re.MULTILINE)
    named = re.findall(r'<a id="([^"]+)"', lines)
    return {*named, *(re.sub(r"[^\w -]", "", head.lower()).replace(" ", "-") for head in heads)}


@pytest.mark.parametrize("document", DOCUMENTS)
def test_a_link_in_a_document_leads_to_a_file_and_a_heading_of_it(document: str) -> None:
    here = ROOT / document
    links = [link.partition("#") for link in re.findall(r"\]\(([^):\s]+)\)", here.read_text(encoding="utf-8"))]
    found = [(link + mark + anchor, here.parent / link if link else here, anchor) for link, mark, anchor in links]

    assert [link for link, file, _ in found if not file.exists()] == []
    assert [link for link, file, anchor in found if anchor and anchor not in anchors(file)] == []


def test_the_site_is_built_without_a_warning_and_loads_nothing_from_another_host(tmp_path: Path) -> None:
    """mkdocs.yml is strict: a page that is missing there, a link and an anchor that lead nowhere end the build."""
    build = [sys.executable, "-m", "mkdocs", "build", "--config-file", str(ROOT / "mkdocs.yml")]
    words = [*build, "--site-dir", str(tmp_path)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=scaled(60.0))

    assert (done.returncode, done.stdout) == (0, "")
    assert [line for line in done.stderr.splitlines() if not line.startswith("INFO")] == []
    pages = "".join(page.read_text(encoding="utf-8") for page in tmp_path.rglob("*.html"))
    assert "Nodeward" in pages
    assert re.findall(r"<(?:link|script|img|iframe)\b[^>]*(?:src|href)=\"(?:[a-z]+:)?//[^\"]*", pages) == []
    styles = "".join(file.read_text(encoding="utf-8") for file in tmp_path.rglob("*.css"))
    assert re.findall(r"url\([\"']?(?:https?:)?//[^)]*", styles) == []


def codes(path: Path) -> Iterator[str]:
    """What the module names its findings, where it says so in one word."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        match node:
            case ast.Call(func=ast.Name("Finding"), args=[ast.Constant(str(code)), severity, *_]):
                if "OK" not in ast.unparse(severity):
                    yield code


def test_the_page_of_doctor_has_every_code_that_is_no_praise() -> None:
    named = {code for path in (ROOT / "src/nodeward").rglob("*findings.py") for code in codes(path)}

    assert len(named) > 60
    assert sorted(code for code in named if f"`{code}`" not in text("docs/troubleshooting.md")) == []


def test_the_page_of_settings_is_as_it_is_generated() -> None:
    assert text("docs/settings.md") == SETTINGS_PAGE.made(), "run scripts/generate-settings-page"


def test_the_page_of_events_is_as_it_is_generated() -> None:
    assert text("docs/events.md") == _script("generate-events-page").made(), "run scripts/generate-events-page"


def test_every_setting_has_a_meaning_in_the_schema() -> None:
    meanings = {name: meaning.whole if meaning else "" for name, _, meaning in SETTINGS_PAGE.every()}

    assert [name for name, one in meanings.items() if not one or "|" in one or "\n" in one] == []
    assert [one for one in meanings.values() if json.dumps(one) not in json.dumps(loader.schema())] == []


def test_the_page_on_metrics_has_every_family_with_its_type_labels_and_meaning() -> None:
    rows = re.findall(r"^\| `(\w+)` \| (\w+) \| ([^|]+) \| ([^|]+) \|$", text("docs/metrics.md"), re.MULTILINE)
    labels = {one.name: ", ".join(f"`{label}`" for label in one.labels) or "none" for one in FAMILIES}

    assert sorted(rows) == sorted((one.name, one.kind, labels[one.name], one.help) for one in FAMILIES)


def test_each_condition_has_an_alert_of_its_severity_and_the_operator_reads_what_to_do_for_it() -> None:
    """By code and severity, so that a pager, `nodeward status` and the page say the same."""
    files = ("deploy/prometheus/rules.yaml", "deploy/webhook/alerts.yaml")
    groups = [group for file in files for group in yaml.safe_load(text(file))["groups"]]
    rules = [rule for group in groups for rule in group["rules"] if "alert" in rule]
    severities = {(rule["labels"].get("condition", ""), rule["labels"]["severity"]) for rule in rules}
    alerts: dict[str, list[str]] = {code: [] for code in CODES}
    for rule in rules:
        alerts[rule["labels"]["condition"]].append(f"`{rule['alert']}`")
    rows = re.findall(r"^\| `([a-z-]+)` \| (\w+) \| ([^|]+) \| ([^|]+) \|$", text("docs/limits.md"), re.MULTILINE)

    assert severities == {(code, how.value) for code, (how, _) in CODES.items()}
    assert rows == [(code, how.value, ", ".join(alerts[code]), what.rstrip(".")) for code, (how, what) in CODES.items()]


def test_the_operator_reads_what_to_do_for_every_state() -> None:
    rows = re.findall(r"^\| `([a-z-]+)` \| [^|]+ \| [^|]+ \|$", text("docs/limits.md"), re.MULTILINE)

    assert sorted(rows) == sorted(state.value for state in Standing)


def test_the_example_settings_are_accepted_and_name_every_setting() -> None:
    example = ROOT / "deploy/nodeward.example.yaml"

    assert isinstance(loader.load(str(example), {}), Settings)
    assert list(_leaves(loader.read_yaml(str(example)))) == [name for name, _, _ in SETTINGS_PAGE.keys(Settings)]
    for head in (example.read_text().splitlines()[0], str(Settings.__doc__)):
        assert [one for one in ("node", "relay", "webhook") if f"`nodeward {one}`" not in head] == []


def test_the_example_settings_have_the_shipped_kinds_of_key_with_every_setting_of_each() -> None:
    example = ROOT / "deploy/nodeward.example.yaml"
    kinds = yaml.safe_load(example.read_text())["keys"]["kinds"]

    assert loader.load(str(example), {}).keys == KeysSettings()
    names = sorted(one.name for one in dataclasses.fields(KeyKind))
    assert [sorted(row) for row in kinds.values()] == [names] * len(KeysSettings().kinds)


def test_the_page_on_sandboxes_has_katas_option_as_the_command_prints_it() -> None:
    rows = [(f"`{one.value}`", *dataclasses.astuple(one)[1:]) for one in OPTIONS]
    rows += [dataclasses.astuple(one) for one in DEFAULTS]

    assert [row for row in rows if f"| {' | '.join(row)} |" not in text("docs/sandboxes.md")] == []


def test_the_page_on_sandboxes_says_what_to_do_for_every_verdict() -> None:
    rows = re.findall(r"^\| `([a-z ]+)` \| [^|]+ \| [^|]+ \|$", text("docs/sandboxes.md"), re.MULTILINE)

    assert sorted(row for row in rows if not row.startswith("nodeward")) == sorted(one.value for one in Fit)


def test_the_settings_on_the_page_of_cpu_policies_are_accepted(tmp_path: Path) -> None:
    blocks = re.findall(r"\n((?:    .*\n)+)", text("docs/cpus.md").partition("## Write a policy")[0])
    for number, block in enumerate(blocks):
        (tmp_path / f"{number}.yaml").write_text(textwrap.dedent(block))
    active = [loader.load(str(file), {}).policy.active for file in sorted(tmp_path.iterdir())]

    with_pools = ("podpools", "static-pools", "dynamic-pools")
    assert active == ["static-plus", "static", "topology-aware", "balloons", "balloons", *with_pools, "topology-aware"]


def test_the_page_of_cpu_policies_names_every_option_of_pools() -> None:
    page = text("docs/cpus.md").lower()
    kinds = [one for section in pools.SECTIONS.values() for one in pools.kinds(section)]
    words = {name.replace("_", "") for kind in kinds for name in pools.spellings(kind)}
    left_out = {word for kind in kinds for table in (pools.NOT_ENFORCED, pools.REFUSED) for word in table.get(kind, ())}

    assert [word for word in sorted(words | left_out) if word.lower() not in page] == []


def _leaves(tree: object, above: str = "") -> Iterator[str]:
    assert isinstance(tree, dict)
    for name, value in tree.items():
        if isinstance(value, dict) and above + name not in TABLES:
            yield from _leaves(value, f"{above}{name}.")
        else:
            yield above + name


@pytest.mark.parametrize("command", COMMANDS)
def test_a_sub_command_is_described(command: str) -> None:
    assert f"`nodeward {command}" in text("docs/commands.md")


def test_a_command_that_a_document_names_exists() -> None:
    named = [name for document in DOCUMENTS for name in re.findall(r"`nodeward ([a-z]+(?:-[a-z]+)*)", text(document))]

    assert [name for name in named if name not in COMMANDS] == []


@pytest.mark.parametrize("document", DOCUMENTS)
def test_a_make_target_that_a_document_names_exists(document: str) -> None:
    targets = re.findall(r"^([a-z][a-z -]*):", text("Makefile"), re.MULTILINE)
    there = [name for line in targets for name in line.split()]
    named = re.findall(r"(?:^ {4}|`)make ([a-z-]+)", text(document), re.MULTILINE)

    assert [name for name in named if name not in there] == []


def test_make_images_as_cri_resource_managers_readme_types_it_is_make_image() -> None:
    typed = [["make", "-n", target] for target in ("images", "image")]
    images, image = (subprocess.run(one, cwd=ROOT, capture_output=True, text=True, check=True).stdout for one in typed)

    assert (images, "build-image" in image) == (image, True)


def test_the_patch_for_vm_sandboxes_mounts_every_folder_that_is_read() -> None:
    patch = text("deploy/node/sandboxes.yaml")
    files = (*DEFAULTS_GO, *DEFAULTS_RS, *shim_socket.places(SandboxId("s1")), f"{DANS}/s1.json", f"{CNI}/a-s1-eth0")
    mounted = re.findall(r"mountPath: (\S+)", patch)

    assert [file for file in files if not any(file.startswith(f"{folder}/") for folder in mounted)] == []
    assert re.findall(r"path: (/[^,]+), type", patch) == mounted


@pytest.mark.parametrize("name", ["dev", "run"])
def test_constraints_hold_wherever_packages_come_from(name: str) -> None:
    lines = text(f"constraints/{name}.txt").splitlines()
    assert [line for line in lines if line.startswith("-")] == [], "an option names a place"
    assert [line for line in lines if "://" in line or " @ " in line] == []


def test_what_runs_is_of_the_versions_that_are_tested() -> None:
    run, dev = (set(re.findall(r"^\S+==\S+", text(f"constraints/{name}.txt"), re.MULTILINE)) for name in ("run", "dev"))
    assert run
    assert run - dev == set()
