"""server/discover (core, "Discovery")."""

from __future__ import annotations

from typing import Any

from app.domain.task import Json
from app.methods.call import Call
from app.wire.envelope import dumps
from app.wire.revisions import SUPPORTED, TASKS_EXTENSION
from app.wire.server_info import RESULT_META

FRESH_MS = 3_600_000
"""How long clients may keep the answer: it changes only with the release."""

# The extension's object stays empty: some clients take any key in it for a setting that they do not know.
CAPABILITIES: dict[str, Any] = {"tools": {"listChanged": True}, "extensions": {TASKS_EXTENSION: {}}}

_RESULT: Json = dumps(
    {
        "resultType": "complete",
        "supportedVersions": list(SUPPORTED),
        "capabilities": CAPABILITIES,
        "ttlMs": FRESH_MS,
        "cacheScope": "public",
        "_meta": RESULT_META,
    }
)


async def discover(_: Call) -> Json:
    """Versions, capabilities and name of this server; the same for everybody."""
    return _RESULT
