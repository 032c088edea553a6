"""The distribution's Prometheus with the shipped files, and the shipped dashboard's queries."""

import json
import re
import shutil
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final
from urllib.error import HTTPError, URLError
from urllib.parse import quote
from urllib.request import urlopen

import pytest
import yaml

from tests.patience import scaled
from tests.peers.find import absent
from tests.peers.ports import free_port

FOLDER: Final = Path(__file__).resolve().parents[2] / "deploy" / "prometheus"
WITHIN_S: Final = scaled(60.0)
CLUSTER: Final = "home"
Job = Mapping[str, object]
"""An entry of `scrape_configs`."""
NOT_HERE: Final = {
    "sum by (outcome) (rate(nodeward_relay_decisions_total": "limits are driven by NRI here",
    "sum by (namespace, pod, container) (container_memory_working_set_bytes": "there is no cAdvisor",
    "sum by (namespace, pod, container) (rate(container_memory_failures_total": "there is no cAdvisor",
    "nodeward_cpus_pool{": "no policy divides the CPUs",
    "nodeward_cpus_pool_requested{": "no policy divides the CPUs",
}
"""How the queries begin that have nothing to show beside the doubles of `tests/real`, and why. They are sent there too
and must have an empty answer. `test_relay.py` and `test_kubelet.py` there have what they ask about, but for CPUs."""


def require_prometheus() -> str:
    program = shutil.which("prometheus")
    if program is None:
        absent("prometheus is not installed: run scripts/install-tools")
    return program


class Prometheus:
    def __init__(self, port: int) -> None:
        self._url = f"http://127.0.0.1:{port}/api/v1"

    def get(self, path: str) -> object:
        try:
            with urlopen(f"{self._url}{path}", timeout=scaled(20)) as answer:
                found = json.loads(answer.read())
        except HTTPError as error:
            if error.code != 503:  # which it says while it starts
                pytest.fail(f"{path}: {error.code} {error.read().decode()}")
            return None
        except (URLError, ConnectionError):
            return None
        return found["data"] if found["status"] == "success" else None

    def values(self, query: str) -> list[float]:
        data = self.get(f"/query?query={quote(query)}")
        return [float(one["value"][1]) for one in data["result"]] if isinstance(data, dict) else []

    def empty(self, query: str) -> None:
        """The query succeeds and finds nothing."""
        assert self.get(f"/query?query={quote(query)}") == {"resultType": "vector", "result": []}, query

    def names(self, label: str, series: str) -> list[str]:
        """The label's values in these series, as Grafana asks for a variable's."""
        data = self.get(f"/label/{label}/values?match[]={quote(series)}")
        assert isinstance(data, list), data
        return [str(one) for one in data]

    def until(self, query: str, values: list[float] | None = None) -> list[float]:
        """Waits for the query to have these values, or any; what it has."""
        end = time.monotonic() + WITHIN_S
        while not (found := self.values(query)) or values not in (None, found):
            assert time.monotonic() < end, f"{query} is {found}, not {values or 'something'}"
            time.sleep(0.2)
        return found


@contextmanager
def prometheus(folder: Path, scraped: int, *more: Job, every: str = "1s") -> Iterator[Prometheus]:
    """Prometheus with the shipped files, and maybe more jobs; only the targets and the pace are the test's."""
    program = require_prometheus()
    config = yaml.safe_load((FOLDER / "scrape.yaml").read_text())
    config["scrape_configs"][0]["static_configs"] = [
        {"targets": [f"127.0.0.1:{scraped}"], "labels": {"cluster": CLUSTER}}
    ]
    config["scrape_configs"] += more
    config |= {
        "global": {"scrape_interval": every, "evaluation_interval": every},
        "rule_files": [str(FOLDER / "rules.yaml")],
    }
    (folder / "prometheus.yaml").write_text(yaml.safe_dump(config))
    port = free_port()
    with (folder / "prometheus.log").open("wb") as log:
        process = subprocess.Popen(
            [
                program,
                f"--config.file={folder}/prometheus.yaml",
                f"--storage.tsdb.path={folder}/data",
                f"--web.listen-address=127.0.0.1:{port}",
            ],
            stdout=log,
            stderr=log,
        )
    try:
        yield Prometheus(port)
    finally:
        process.terminate()
        process.wait(timeout=scaled(30))


def board() -> dict[str, Any]:
    found: dict[str, Any] = json.loads((FOLDER / "dashboard.json").read_text())
    return found


def filled(text: str) -> str:
    """A query as it is sent once the dashboard's variables have values: a cluster, and all the rest."""
    text = re.sub(r"\$(node|namespace|pod)\b", ".*", text.replace("$resource", "sgx_epc").replace("$cluster", CLUSTER))
    assert "$" not in text, text
    return text


def queries(of_sandboxes: bool = False) -> list[str]:
    every = [filled(target["expr"]) for panel in board()["panels"] for target in panel["targets"]]
    return [query for query in every if ("nodeward_sandboxes_" in query) is of_sandboxes]


def asked(of: str) -> list[str]:
    """Those of NOT_HERE that ask about metrics whose names begin so."""
    found = [query for query in queries() if query.startswith(tuple(one for one in NOT_HERE if of in one))]
    assert found, of
    return found


def variables() -> dict[str, tuple[str, str]]:
    """The dashboard's variables that are asked of Prometheus: of which label in which series."""
    texts = {one["name"]: one["query"]["query"] for one in board()["templating"]["list"] if one["type"] == "query"}
    found = {name: re.fullmatch(r"label_values\((.+), (\w+)\)", text) for name, text in texts.items()}
    return {name: (match[2], filled(match[1])) for name, match in found.items() if match is not None}
