"""A pytest plugin: one JSON line for each report of a failed case, in the file that NODEWARD_FAILURES names."""

import json
import os

import pytest


def _write(report: pytest.TestReport | pytest.CollectReport, when: str) -> None:
    if report.failed and (path := os.environ.get("NODEWARD_FAILURES")):
        said = "\n".join((report.longreprtext, *(f"--- {name}\n{text}" for name, text in report.sections)))
        with open(path, "a") as file:
            file.write(json.dumps({"case": report.nodeid, "when": when, "said": said}) + "\n")


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    _write(report, report.when or "")


def pytest_collectreport(report: pytest.CollectReport) -> None:
    _write(report, "collect")
