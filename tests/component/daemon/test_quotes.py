"""Whether quotes are made, as a running daemon sees and shows it."""

import asyncio
from dataclasses import replace
from pathlib import Path

from nodeward.doubles.qgs import Qgs
from nodeward.model.settings import Attestation, KeySettings, LedgerSettings, Mode, Settings
from tests.component.daemon.rig import rig
from tests.component.daemon.test_keys import until_keys


def test_a_quote_service_that_ends_and_comes_back_is_shown(tmp_path: Path) -> None:
    service = Qgs(tmp_path / "qgs.socket")

    def attested(settings: Settings) -> Settings:
        row = KeySettings(("a.b/tdx",), attestation=Attestation.OBSERVE, attestation_socket=str(service.path))
        return replace(settings, ledger=LedgerSettings(Mode.OBSERVE, {"tdx": row}))

    async def story() -> None:
        async with rig(tmp_path, change=attested) as node:
            with node.files.lock:
                node.kernel.set_capacity("tdx", 4)
            await until_keys(node, f"the service that makes quotes: {service.path}: No such file or directory")
            await service.start()
            await until_keys(node, "the service that makes quotes: answers")
            await service.stop()
            await until_keys(node, f"the service that makes quotes: {service.path}: Connection refused")

    asyncio.run(story())
