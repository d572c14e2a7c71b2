"""On whose behalf a request is made.

Nobody is asked who they are yet: every request acts for one anonymous principal. All that is stored has its owner,
and nothing is shown to another one.
"""

from __future__ import annotations

from aiohttp import web

ANONYMOUS = "anonymous"


def owner_of(_: web.BaseRequest) -> str:
    """The principal that a request acts for."""
    return ANONYMOUS
