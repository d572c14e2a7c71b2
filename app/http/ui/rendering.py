"""Pages made of templates, and the files that they need: all from this folder, nothing from elsewhere."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

from aiohttp import web
from jinja2 import Environment, FileSystemLoader, StrictUndefined

from app.http.ui import text
from app.version import __version__

HERE = Path(__file__).parent
ROOT = "/ui"
"""The path that the pages live under."""

FILES = {path.name: path.read_bytes() for path in sorted((HERE / "static").iterdir())}
KINDS = {".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
EDITION = hashlib.sha256(b"".join(FILES.values())).hexdigest()[:12]
"""Changes with the files, so that browsers can keep them."""

TOKEN = web.RequestKey("token", str)
"""What forms of the session carry."""

_environment = Environment(
    loader=FileSystemLoader(HERE / "templates"),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
    finalize=text.shown,
)
_environment.filters.update(
    ago=text.ago, clock=text.clock, duration=text.duration, exact=text.exact, pretty=text.pretty
)
_environment.globals.update(root=ROOT, edition=EDITION, version=__version__)


def page(request: web.Request, template: str, *, status: int = 200, **values: Any) -> web.Response:
    """A page made of a template.

    Args:
        values: what the template shows.
    """
    common = {"token": request.get(TOKEN), "path": request.path, "seen": None}
    body = _environment.get_template(template).render(common | values)
    return web.Response(text=body, content_type="text/html", status=status)


def notice(request: web.Request, status: int, title: str, words: str) -> web.Response:
    """A page that only says something."""
    return page(request, "notice.html", status=status, title=title, words=words)


async def static(request: web.Request) -> web.Response:
    """One of our files."""
    name = request.match_info["name"]
    if name not in FILES:
        raise web.HTTPNotFound
    headers = {"Cache-Control": "public, max-age=31536000, immutable"}
    return web.Response(body=FILES[name], content_type=KINDS[Path(name).suffix], charset="utf-8", headers=headers)
