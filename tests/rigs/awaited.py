"""A test may be a coroutine: it has a loop of its own, and an end. For the conftest."""

import asyncio
import inspect

import pytest

from tests.patience import scaled


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Plays it, where it is one."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    given = {name: pyfuncitem.funcargs[name] for name in inspect.signature(pyfuncitem.obj).parameters}

    async def bounded() -> None:
        async with asyncio.timeout(scaled(240.0)):
            await pyfuncitem.obj(**given)

    asyncio.run(bounded())
    return True
