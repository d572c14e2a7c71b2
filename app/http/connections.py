"""What the library that reads HTTP says about connections.

It reports every request that breaks the rules of HTTP as an error of ours, with a traceback: whoever reaches a port
could fill the log.
"""

from __future__ import annotations

import logging

from aiohttp.http_exceptions import HttpProcessingError

logger = logging.getLogger(__name__)
"""For the runners of all servers: faults of ours pass, bad requests do not."""


def _is_bad_request(record: logging.LogRecord) -> bool:
    return record.exc_info is not None and isinstance(record.exc_info[1], HttpProcessingError)


logger.addFilter(lambda record: not _is_bad_request(record))
