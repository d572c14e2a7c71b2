"""What the library that reads HTTP says about connections, and on them.

It reports every request that breaks the rules of HTTP as an error of ours, with a traceback: whoever reaches a port
could fill the log. And it answers such a request itself, with its own name and version.
"""

from __future__ import annotations

import logging

from aiohttp import hdrs, web
from aiohttp.http_exceptions import HttpProcessingError

from app.http.origins import SERVER

logger = logging.getLogger(__name__)
"""For the runners of all servers: faults of ours pass, bad requests do not."""


class Connection(web.RequestHandler):
    """Speaks HTTP with one client."""

    __slots__ = ()

    def handle_error(
        self, request: web.BaseRequest, status: int = 500, exc: BaseException | None = None, message: str | None = None
    ) -> web.StreamResponse:
        """The answer to what is no request, and to one that has failed."""
        response = super().handle_error(request, status, exc, message)
        response.headers[hdrs.SERVER] = SERVER
        return response


def _is_bad_request(record: logging.LogRecord) -> bool:
    return record.exc_info is not None and isinstance(record.exc_info[1], HttpProcessingError)


logger.addFilter(lambda record: not _is_bad_request(record))
