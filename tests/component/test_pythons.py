"""The unit tier on other Pythons, each the one of that name on PATH."""

import subprocess
from pathlib import Path

import pytest

from tests.peers.find import absent

HERE = Path(__file__).parents[2]


@pytest.mark.nightly
@pytest.mark.parametrize("version", ["3.12", "3.13"])
def test_the_unit_tier_passes_on_another_python(version: str, tmp_path: Path) -> None:
    if subprocess.run(["sh", "-c", f"python{version} -c 'import ensurepip'"], check=False).returncode:
        absent(f"NO PYTHON {version} HERE: nothing was tested with it; run apt-get install python{version}-venv")
    pip = f"{tmp_path}/bin/pip install --quiet --disable-pip-version-check"
    steps = f"""python{version} -m venv {tmp_path}
        {pip} --require-hashes -r constraints/dev.txt
        {pip} --no-deps --no-build-isolation -e .
        {tmp_path}/bin/python -m pytest -q -p no:cacheprovider -m "not nightly" tests/unit"""
    done = subprocess.run(["sh", "-ec", steps], cwd=HERE, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
