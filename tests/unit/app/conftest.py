"""Tests here may be coroutines."""

from tests.rigs.awaited import pytest_pyfunc_call

__all__ = ["pytest_pyfunc_call"]
