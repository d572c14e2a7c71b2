"""What clients of the older revisions open with (core, "Backward Compatibility with Initialization-Based Versions").

Nothing is remembered of it: there is no session, and each later request says its revision in a header.
"""

from __future__ import annotations

from app.domain.task import Json
from app.errors import ErrorKind, Refusal
from app.methods.call import Call
from app.wire.envelope import dumps
from app.wire.revisions import LEGACY
from app.wire.server_info import SERVER_INFO

_NOTHING = Json("{}")


async def initialize(call: Call) -> Json:
    """Agree on a revision: the client's own if it is one of the older ones, else the newest of them.

    The newer ones are not spoken by clients that open this way.
    """
    wanted = call.params.get("protocolVersion")
    if not isinstance(wanted, str):
        raise Refusal(ErrorKind.INVALID_PARAMS, "Invalid params: params.protocolVersion must be a string")
    agreed = wanted if wanted in LEGACY else LEGACY[0]
    # Only what is there: no list that changes, no log messages, no tasks.
    return dumps({"protocolVersion": agreed, "capabilities": {"tools": {}}, "serverInfo": SERVER_INFO})


async def ping(_: Call) -> Json:
    """Say that the server is there."""
    return _NOTHING
