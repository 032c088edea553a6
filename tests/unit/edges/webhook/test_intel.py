"""Intel's own expectations of its SGX webhook, written from what its end-to-end tests look at: six mutations, and the
pod with which it tries EPC.
"""

from dataclasses import dataclass

import pytest

from tests.unit.edges.webhook.rounds import Json, admitted, at, container, notes, pod_of

EPC, ENCLAVE, PROVISION = "sgx.intel.com/epc", "sgx.intel.com/enclave", "sgx.intel.com/provision"
SOCKET: Json = {"name": "aesmd-socket", "mountPath": "/var/run/aesmd"}
MEMORY: Json = {"name": "aesmd-socket", "emptyDir": {"medium": "Memory"}}
HOST: Json = {"name": "aesmd-socket", "hostPath": {"path": "/var/run/aesmd", "type": "DirectoryOrCreate"}}


@dataclass(frozen=True, slots=True)
class Case:
    """A pod of these containers, each with an EPC of 1Mi, and what its author must find in it afterwards."""

    names: tuple[str, ...]
    provider: str
    provision: tuple[str, ...] = ()
    volume: Json | None = None


CASES = {
    "no quote is made": Case(("test",), ""),
    "the container makes quotes itself": Case(("test",), "test", provision=("test",)),
    "aesmd beside the container makes quotes": Case(("test", "aesmd"), "aesmd", provision=("aesmd",), volume=MEMORY),
    "the node's aesmd makes quotes for one": Case(("test",), "aesmd", volume=HOST),
    "the node's aesmd makes quotes for three": Case(("test1", "test2", "test3"), "aesmd", volume=HOST),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_intels_webhook_mutates_so(case: Case) -> None:
    made = pod_of(
        *(container(name, {EPC: "1Mi"}) for name in case.names),
        annotations={"sgx.intel.com/quote-provider": case.provider} if case.provider else {},
    )
    found = admitted(made).pod
    for index, name in enumerate(case.names):
        devices = {ENCLAVE: "1", PROVISION: "1"} if name in case.provision else {ENCLAVE: "1"}
        resources = {EPC: "1Mi"} | devices
        one = ("spec", "containers", index)
        assert at(found, *one, "resources") == {"limits": resources, "requests": resources}
        assert at(found, *one, "volumeMounts") == ([SOCKET] if case.volume else None)
        assert at(found, *one, "env") == ([{"name": "SGX_AESM_ADDR", "value": "1"}] if case.volume else None)
    assert at(found, "spec", "volumes") == ([case.volume] if case.volume else None)
    assert at(found, "metadata", "annotations", EPC) == f"{len(case.names)}Mi"


def test_volumes_and_mounts_that_the_author_has_written_are_there_once() -> None:
    made = pod_of(
        container("test", {EPC: "1Mi"}, volumeMounts=[SOCKET]),
        container("aesmd", {EPC: "1Mi"}, volumeMounts=[SOCKET]),
        annotations={"sgx.intel.com/quote-provider": "aesmd"},
        volumes=[MEMORY],
    )
    found = admitted(made).pod
    assert at(found, "spec", "volumes") == [MEMORY]
    assert [at(found, "spec", "containers", index, "volumeMounts") for index in (0, 1)] == [[SOCKET], [SOCKET]]


def test_the_pod_with_which_intel_tries_epc_is_let_in() -> None:
    """On hardware: it has 42 bytes, and each annotation says so."""
    found = admitted(pod_of(container("test", {EPC: "42"}))).pod
    assert at(found, "spec", "containers", 0, "resources", "limits") == {EPC: "42", ENCLAVE: "1"}
    assert notes(found) == {
        EPC: "42",
        "epc-limit.nri.io/container.test": "42",
        "nodeward.io/limits": '{"test":{"sgx_epc":"42"}}',
    }
