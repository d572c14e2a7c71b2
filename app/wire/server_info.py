"""How this server names itself on every result (core, "Per-response protocol fields")."""

from __future__ import annotations

from app.domain.task import Json
from app.version import __version__
from app.wire.envelope import dumps

SERVER_INFO = {"name": "perdure", "version": __version__}
RESULT_META = {"io.modelcontextprotocol/serverInfo": SERVER_INFO}
"""The `_meta` of a result."""

RESULT_META_JSON: Json = dumps(RESULT_META)
