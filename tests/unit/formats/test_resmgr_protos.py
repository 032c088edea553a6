"""CRI Resource Manager's two local services as it declares them: names, numbers and types are the wire.

Its module is on no Go proxy, so the table was read off `pkg/agent/api/v1/api.proto` and
`pkg/cri/resource-manager/config/api/v1/api.proto` of its last commit (be3bf91f).
"""

import subprocess
import sys
from pathlib import Path

from google.protobuf.descriptor import FieldDescriptor, FileDescriptor

from nodeward.contracts import resmgr_agent_pb2, resmgr_config_pb2

AGENT = {
    "GetNodeRequest": "",
    "GetNodeReply": "string node = 1",
    "JsonPatch": "string op = 1; string path = 2; string value = 3",
    "PatchNodeRequest": "repeated JsonPatch patches = 1",
    "PatchNodeReply": "",
    "UpdateNodeCapacityRequest": "map<string, string> capacities = 1",
    "UpdateNodeCapacityReply": "",
    "HealthCheckRequest": "string query = 1",
    "HealthCheckReply": "string error = 1",
    "service": "Agent: GetNode PatchNode UpdateNodeCapacity HealthCheck",
}
CONFIG = {
    "SetConfigRequest": "string node_name = 1; map<string, string> config = 2",
    "SetConfigReply": "string error = 1",
    "SetAdjustmentRequest": "string node_name = 1; string adjustment = 2",
    "SetAdjustmentReply": "map<string, string> errors = 1",
    "service": "Config: SetConfig SetAdjustment",
}


def declared(file: FileDescriptor) -> dict[str, str]:
    assert file.package == "v1"
    found = {
        name: "; ".join(_field(one) for one in message.fields) for name, message in file.message_types_by_name.items()
    }
    for name, service in file.services_by_name.items():
        for method in service.methods:
            assert method.input_type.name == f"{method.name}Request"
            assert method.output_type.name == f"{method.name}Reply"
        found["service"] = f"{name}: {' '.join(method.name for method in service.methods)}"
    return found


def _field(one: FieldDescriptor) -> str:
    if one.message_type is None:
        assert one.type == FieldDescriptor.TYPE_STRING
        kind = "string"
    elif one.message_type.GetOptions().map_entry:
        inside = one.message_type.fields_by_number
        assert [inside[number].type for number in (1, 2)] == [FieldDescriptor.TYPE_STRING] * 2
        kind = "map<string, string>"
    else:
        kind = f"repeated {one.message_type.name}"
    return f"{kind} {one.name} = {one.number}"


def test_both_services_are_cri_resource_managers() -> None:
    assert declared(resmgr_agent_pb2.DESCRIPTOR) == AGENT
    assert declared(resmgr_config_pb2.DESCRIPTOR) == CONFIG


ROOT = Path(__file__).resolve().parents[3]


def test_regeneration_gives_the_same_bytes(tmp_path: Path) -> None:
    subprocess.run([sys.executable, str(ROOT / "scripts/generate-protos"), str(tmp_path)], check=True, timeout=60)
    made = {path.name: path.read_bytes() for path in (tmp_path / "nodeward/contracts").iterdir()}
    contracts = ROOT / "src/nodeward/contracts"
    kept = {path.name: path.read_bytes() for path in (*contracts.glob("*_pb2.py*"), *contracts.glob("*.proto"))}
    assert made == kept
