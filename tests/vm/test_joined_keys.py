"""Keys offered to a real kubelet while a real kernel counts them, and then a kubelet whose runtime is the relay."""

from tests.vm.joined import joined
from tests.vm.joined_keys import CASES

test_joined = joined(CASES, "keys")
