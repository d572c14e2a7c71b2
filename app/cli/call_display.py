"""What `perdure call` shows: how the task gets on, on stderr; its result, on stdout."""

from __future__ import annotations

import json
import re
import sys
from typing import Any, TextIO

from rich.console import Console
from rich.status import Status
from rich.text import Text

ELICIT = "elicitation/create"

# What would move a terminal's cursor, end a line, or turn the direction of its text.
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]")


def visible(text: str) -> str:
    """Someone else's text for a terminal: what is not meant to be seen is escaped."""
    return _CONTROL.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


class Display:
    """Tells on stderr what happens: a line that changes on a terminal, a line for each change elsewhere."""

    def __init__(self) -> None:
        self.console = Console(stderr=True, highlight=False, markup=False, emoji=False, soft_wrap=True)
        self._status: Status | None = None
        self._told: str | None = None

    def say(self, text: str) -> None:
        """A line that stays."""
        self.console.print(Text(visible(text)))

    def progress(self, text: str) -> None:
        """What goes on now; the next one takes its place."""
        if text == self._told:
            return
        self._told = text
        if not self.console.is_terminal:
            self.say(text)
            return
        line = Text(visible(text).replace("\n", " "), no_wrap=True, overflow="ellipsis")
        if self._status is None:
            self._status = self.console.status(line)
            self._status.start()
        else:
            self._status.update(line)

    def rest(self) -> None:
        """Take the line that changes away: something else is shown, or typed."""
        if self._status is not None:
            self._status.stop()
            self._status = None
        self._told = None

    def ending(self, state: dict[str, Any]) -> None:
        """What came of a call."""
        match state.get("status"):
            case "completed":
                show_result(state["result"])
            case "failed":
                error = state["error"]
                self.say(f"It failed: {error.get('message')} ({error.get('code')})")
            case "cancelled":
                self.say(progress_of(state))


def progress_of(state: dict[str, Any]) -> str:
    """How a task gets on, in a line."""
    return ": ".join(str(state[key]) for key in ("status", "statusMessage") if key in state)


def questions(requests: dict[str, Any]) -> str:
    """What is asked, a line each."""
    return "\n".join(f"  {key}: {_question(request)}" for key, request in requests.items())


def show_result(result: dict[str, Any]) -> None:
    """Print a CallToolResult: to stdout, or to stderr where the tool says that it failed."""
    out = sys.stderr if result.get("isError") else sys.stdout
    blocks = [block for block in result.get("content", []) if isinstance(block, dict)]
    structured = result.get("structuredContent")
    for block in blocks:
        if structured is None or not _repeats(block, structured):
            _print(_shown(block), out)
    if structured is not None:
        _print(json.dumps(structured, indent=2), out)


def show_json(value: Any) -> None:
    """Print one JSON document, and nothing else, to stdout."""
    print(json.dumps(value, indent=2 if sys.stdout.isatty() else None))


def _question(request: dict[str, Any]) -> str:
    method, params = request.get("method"), request.get("params", {})
    if method != ELICIT:
        return f"{method}, which this client cannot answer"
    return f"{params.get('message')} {params['url'] if params.get('mode') == 'url' else ''}".rstrip()


def _print(text: str, out: TextIO) -> None:
    text = visible(text) if out.isatty() else text
    encoding = out.encoding or "utf-8"
    print(text.encode(encoding, "backslashreplace").decode(encoding), file=out)


def _repeats(block: dict[str, Any], structured: Any) -> bool:
    """Whether a text is the structured content once more, as JSON."""
    try:
        return block.get("type") == "text" and bool(json.loads(block["text"]) == structured)
    except (KeyError, TypeError, ValueError, RecursionError):
        return False


def _shown(block: dict[str, Any]) -> str:
    resource = block.get("resource")
    found = resource if isinstance(resource, dict) else block
    if isinstance(found.get("text"), str):
        return str(found["text"])
    name = " ".join(str(found[key]) for key in ("uri", "mimeType") if key in found)
    data = found.get("data", found.get("blob"))
    size = f", {len(data)} characters of Base64" if isinstance(data, str) else ""
    return f"[{block.get('type')}: {name}{size}]"
