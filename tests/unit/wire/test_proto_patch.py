"""What is appended to a message changes one map for every reader, and not a byte of what was there."""

from hypothesis import given
from hypothesis import strategies as st

from nodeward.proto import cri_pb2 as cri
from nodeward.wire.proto_patch import with_map_entries

CREATE, UPDATE = (2, 15, 1, 9), (2, 9)
OURS = {"misc.max": "sgx_epc 8192"}
UNKNOWN = b"\xfa\x7f\x05later"
"""Field 2047, which no version of CRI has."""


def request() -> cri.CreateContainerRequest:
    """One with everything that a decoded and encoded message is known to lose or to reorder."""
    made = cri.CreateContainerRequest(pod_sandbox_id="s")
    config = made.config
    config.metadata.name = "app"
    for key, value in (("B", b"1"), ("A", b"2"), ("B", b"3")):
        config.envs.add(key=key, value=value)
    mapped = config.mounts.add(container_path="/mapped", host_path="/m")
    mapped.uidMappings.add(host_id=100000, container_id=0, length=65536)
    config.mounts.add(container_path="/ro", host_path="/r", readonly=True, recursive_read_only=True)
    config.mounts.add(container_path="/image").image.image = "registry/image:1"
    config.linux.resources.cpu_shares = 512
    config.linux.resources.unified["memory.high"] = "1000"
    return made


def test_a_create_keeps_every_byte_and_gets_the_limit() -> None:
    """Given an unknown field, a duplicate in the environment and its order, mounts with id mappings, recursive
    read-only and of an image, then a reader finds all of them as they were, and the limit beside them."""
    before = request().SerializeToString() + UNKNOWN
    after = with_map_entries(before, CREATE, OURS)
    assert after.startswith(before)
    seen = cri.CreateContainerRequest.FromString(after)
    unified = dict(seen.config.linux.resources.unified)
    assert unified == {"memory.high": "1000", "misc.max": "sgx_epc 8192"}
    assert [(one.key, one.value) for one in seen.config.envs] == [("B", b"1"), ("A", b"2"), ("B", b"3")]
    del seen.config.linux.resources.unified["misc.max"]
    assert seen == cri.CreateContainerRequest.FromString(before)
    assert UNKNOWN in seen.SerializeToString()


def test_an_update_keeps_the_clients_values() -> None:
    before = cri.UpdateContainerResourcesRequest(container_id="c")
    before.linux.cpu_quota = 20000
    before.linux.unified["memory.high"] = "1000"
    seen = cri.UpdateContainerResourcesRequest.FromString(with_map_entries(before.SerializeToString(), UPDATE, OURS))
    assert dict(seen.linux.unified) == {"memory.high": "1000", "misc.max": "sgx_epc 8192"}
    assert (seen.container_id, seen.linux.cpu_quota) == ("c", 20000)


def test_a_clients_own_value_of_the_key_is_overruled_whole() -> None:
    """Given a client that sets `misc.max` itself, then one value has the key, and that is ours."""
    before = request()
    before.config.linux.resources.unified["misc.max"] = "sev_es 1\nsgx_epc 1"
    seen = cri.CreateContainerRequest.FromString(with_map_entries(before.SerializeToString(), CREATE, OURS))
    assert seen.config.linux.resources.unified["misc.max"] == "sgx_epc 8192"


def test_nothing_to_say_changes_nothing() -> None:
    before = request().SerializeToString()
    assert with_map_entries(before, CREATE, {}) is before


@given(
    st.dictionaries(st.text(max_size=300), st.text(max_size=300), min_size=1, max_size=4),
    st.dictionaries(st.text(max_size=40), st.text(max_size=40), max_size=4),
)
def test_whatever_the_texts_are_a_reader_has_both_maps_and_ours_count(
    ours: dict[str, str], theirs: dict[str, str]
) -> None:
    """Lengths of more than one byte too, at each level."""
    update = cri.UpdateContainerResourcesRequest()
    update.linux.unified.update(theirs)
    create = cri.CreateContainerRequest()
    create.config.linux.resources.unified.update(theirs)
    changed = cri.UpdateContainerResourcesRequest.FromString(with_map_entries(update.SerializeToString(), UPDATE, ours))
    assert dict(changed.linux.unified) == theirs | ours
    made = cri.CreateContainerRequest.FromString(with_map_entries(create.SerializeToString(), CREATE, ours))
    assert dict(made.config.linux.resources.unified) == theirs | ours
