"""Keys and SGX devices offered to a real kubelet, while a real kernel counts the keys."""

from tests.vm.joined import joined
from tests.vm.joined_keys import CASES

test_joined = joined(CASES, "keys")
