"""What the webhook's tests share."""

from pathlib import Path

import pytest

from tests.component.webhook.support import make_pki


@pytest.fixture(scope="package")
def pki(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_pki(tmp_path_factory.mktemp("pki"))
