"""What these tests run against: a real service on a real database."""

import pytest

from tests.methods.inline_tools import Stage
from tests.support.service import service

__all__ = ["service", "stage"]


@pytest.fixture
def stage() -> Stage:
    """What the tools of the test wait for, and what they were seen to do."""
    return Stage()
