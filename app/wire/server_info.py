"""How this server names itself on every result (core, "Per-response protocol fields")."""

from __future__ import annotations

import json

from app.domain.task import Json
from app.version import __version__
from app.wire.envelope import dumps

SERVER_INFO = {"name": "perdure", "version": __version__}
RESULT_META = {"io.modelcontextprotocol/serverInfo": SERVER_INFO}
"""The `_meta` of a result."""

RESULT_META_JSON: Json = dumps(RESULT_META)


def signed(result: Json) -> Json:
    """A tool's result with this server's name in its `_meta` (core, "Per-response protocol fields")."""
    if '"_meta":' in result:
        value = json.loads(result)
        if "_meta" in value:
            return dumps(value | {"_meta": RESULT_META | value["_meta"]})
    return Json(f'{result[:-1]},"_meta":{RESULT_META_JSON}}}')
