"""What these tests run against: an authorization server of their own."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.support.issuer import Issuer, issuing


@pytest.fixture
async def issuer() -> AsyncIterator[Issuer]:
    """A server whose one key is called `first`."""
    async with issuing() as running:
        yield running
