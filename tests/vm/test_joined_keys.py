"""Keys and SGX devices offered to a real kubelet, while a real kernel counts the keys."""

import pytest

from tests.vm.joined import joined
from tests.vm.joined_keys import CASES, MORE

test_joined = joined(CASES, "keys")
test_more = pytest.mark.nightly(joined(MORE, "keys-more"))
