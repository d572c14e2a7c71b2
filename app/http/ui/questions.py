"""A question of a task as a page asks it, and the response that is made of what was filled in."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self
from urllib.parse import urlsplit

from app.domain.task import Json, Question
from app.errors import Refusal
from app.http.ui.fields import MISSING, Field, fields_of
from app.methods.answers import check_answer
from app.tools.validation import written

ELICIT = "elicitation/create"
ACTIONS = ("accept", "decline", "cancel")
RESPONSE = "response"
"""The field for a whole response, where there is no form for it."""

_OTHERS: Mapping[str, tuple[str, Any]] = {
    "sampling/createMessage": (
        "The tool asks for a message of a language model.",
        {"role": "assistant", "content": {"type": "text", "text": ""}, "model": "", "stopReason": "endTurn"},
    ),
    "roots/list": ("The tool asks which folders it may use.", {"roots": [{"uri": "file:///", "name": ""}]}),
}


@dataclass(slots=True)
class Filled:
    """A form with what was typed, and what is wrong with it.

    Attributes:
        typed: by the names of fields in the page.
        flaws: by the same.
        flaw: what is wrong with all of it.
    """

    typed: dict[str, list[str]]
    flaws: dict[str, str] = field(default_factory=dict)
    flaw: str | None = None


@dataclass(frozen=True, slots=True)
class Asking:
    """What is asked.

    Attributes:
        mode: form, url, or json for a question that is not meant for people.
        host: of the page that a url leads to.
        safe: whether that is an address of the web.
    """

    mode: str
    message: str
    fields: tuple[Field, ...] = ()
    url: str = ""
    host: str = ""
    safe: bool = False
    skeleton: str = ""

    @classmethod
    def read(cls, request: str) -> Self:
        """From the stored request."""
        return cls.of(json.loads(request))

    @classmethod
    def of(cls, request: Mapping[str, Any]) -> Self:
        """From a request."""
        params = request.get("params")
        params = params if isinstance(params, Mapping) else {}
        if request.get("method") != ELICIT:
            message, skeleton = _OTHERS.get(str(request.get("method")), ("The tool asks something.", {}))
            return cls("json", message, skeleton=json.dumps(skeleton, indent=2))
        message = str(params.get("message", ""))
        if params.get("mode") == "url":
            url = str(params.get("url", ""))
            host, safe = _host(url)
            return cls("url", message, url=url, host=host, safe=safe)
        return cls("form", message, fields_of(params.get("requestedSchema")))

    @classmethod
    def glimpse(cls, request: str) -> Self:
        """From a stored request that may have been cut."""
        try:
            return cls.read(request)
        except ValueError:
            return cls("form", "A question that is too long to be shown in a list.")

    def empty(self) -> Filled:
        """The form as it is at first."""
        if self.mode == "json":
            return Filled({RESPONSE: [self.skeleton]})
        return Filled({each.id: each.first() for each in self.fields})

    def response(self, question: Question, sent: Mapping[str, list[str]]) -> Json | Filled:
        """The response that was given; where it is none, the form again, with what is wrong."""
        filled = Filled({name: values for name, values in sent.items() if name != "token"})
        action = sent.get("action", [""])[0]
        value: Any = None
        if self.mode == "json":
            value = _parsed(filled)
        elif action not in ACTIONS:
            filled.flaw = "Choose what to do with the question."
        else:
            value = {"action": action}
            if action == "accept" and self.mode == "form":
                value["content"] = self._content(filled)
        if filled.flaws or filled.flaw:
            filled.flaw = filled.flaw or "Nothing was sent yet: see what is marked below."
            return filled
        try:
            response = written(value)
            check_answer(question, value)
        except Refusal as refusal:
            filled.flaw = f"This is not a response to the question: {refusal.message.rpartition(': ')[2]}"
            return filled
        except ValueError as flaw:
            filled.flaw = f"This cannot be sent: {flaw}"
            return filled
        return response

    def _content(self, filled: Filled) -> dict[str, Any]:
        content = {}
        for each in self.fields:
            try:
                value = each.read(filled.typed.get(each.id, []))
            except ValueError as flaw:
                filled.flaws[each.id] = str(flaw)
                continue
            if value is not MISSING:
                content[each.name] = value
        return content


def _parsed(filled: Filled) -> Any:
    try:
        return json.loads(filled.typed.get(RESPONSE, [""])[0])
    except (ValueError, RecursionError):
        filled.flaws[RESPONSE] = "This is not JSON."
        return None


def _host(url: str) -> tuple[str, bool]:
    try:
        parts = urlsplit(url)
        return parts.hostname or "", parts.scheme in ("http", "https") and bool(parts.hostname)
    except ValueError:
        return "", False
