"""Given the contracts in src/nodeward/proto, the generated code beside them is what protoc makes of them today."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]


def test_regeneration_gives_the_same_bytes(tmp_path: Path) -> None:
    subprocess.run([sys.executable, str(ROOT / "scripts/generate-protos"), str(tmp_path)], check=True, timeout=60)
    made = {path.name: path.read_bytes() for path in (tmp_path / "nodeward/proto").iterdir()}
    kept = {path.name: path.read_bytes() for path in (ROOT / "src/nodeward/proto").glob("*_pb2.py*")}
    assert made == kept
