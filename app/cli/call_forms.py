"""A tool's questions, asked in the terminal (core, "Elicitation"): forms made of their schema, and pages to open."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

from rich.text import Text

from app.cli.call_display import ELICIT, Display, visible
from app.cli.call_fields import Field, flaw_of


class Asker:
    """Asks the user at the terminal.

    Args:
        display: where questions are shown.
        server: who asks, as the user should see it.
        read: a line that the user types.

    A line that cannot be read ends the asking with an EOFError, Ctrl-C with a KeyboardInterrupt.
    """

    def __init__(self, display: Display, server: str, read: Callable[[], str] = input) -> None:
        self._display, self._server, self._read = display, server, read

    def ask(self, request: dict[str, Any]) -> dict[str, Any] | None:
        """The response to a question; None for one that is not asked of users."""
        if request.get("method") != ELICIT:
            return None
        params = request.get("params", {})
        self._display.rest()
        self._display.say(f"\n{self._server} asks:")
        self._display.say(str(params.get("message", "")))
        return self._page(params) if params.get("mode") == "url" else self._form(params)

    def choose(self, question: str, choices: dict[str, str]) -> str:
        """One of the choices, by its first letter; the first one for an empty line."""
        letters = {name[0]: name for name in choices}
        names = ", ".join(f"[{name[0]}]{name[1:]}{says}" for name, says in choices.items())
        while True:
            said = self._line(f"{question} {names}: ").strip().lower()
            if not said or said[0] in letters:
                return letters[said[0]] if said else next(iter(choices))
            self._display.say(f"Type one of {', '.join(letters)}.")

    def _page(self, params: dict[str, Any]) -> dict[str, Any]:
        url = str(params.get("url", ""))
        self._display.say(f"It wants you to open a page of {urlsplit(url).hostname}:\n{url}")
        choices = {"yes": ", I open it", "decline": "", "cancel": " (not now)"}
        said = self.choose("Do you?", choices)
        return {"action": "accept" if said == "yes" else said}

    def _form(self, params: dict[str, Any]) -> dict[str, Any]:
        form = params.get("requestedSchema", {})
        said = self.choose("Answer?", {"yes": "", "decline": "", "cancel": " (not now)"})
        answers: dict[str, Any] = {}
        while said in ("yes", "edit"):
            answers = self._fill(form, answers)
            said = self._review(form, answers)
        return {"action": "accept", "content": answers} if said == "send" else {"action": said}

    def _review(self, form: dict[str, Any], answers: dict[str, Any]) -> str:
        """What to do with the answers; it may be another time to edit them."""
        for name, value in answers.items():
            self._display.say(f"  {name}: {value if isinstance(value, str) else json.dumps(value)}")
        flaw = flaw_of(form, answers)
        if flaw is not None:
            self._display.say(f"This does not fit: {flaw}")
        send = {"send": ""} if flaw is None else {}
        return self.choose("Send it?" if send else "What now?", send | {"edit": "", "decline": "", "cancel": ""})

    def _fill(self, form: dict[str, Any], before: dict[str, Any]) -> dict[str, Any]:
        answers: dict[str, Any] = {}
        for name, schema in form.get("properties", {}).items():
            field = Field(name, schema, name in form.get("required", ()), before.get(name, schema.get("default")))
            value = self._value(field)
            if value is not None:
                answers[name] = value
        return answers

    def _value(self, field: Field) -> Any:
        """What the user types into a field, asked again until it fits; None for nothing."""
        for line in field.explained():
            self._display.say(line)
        while True:
            text = self._line(f"{field.prompt()}: ")
            try:
                return field.read(text)
            except ValueError as flaw:
                self._display.say(f"  {flaw}")

    def _line(self, prompt: str) -> str:
        self._display.console.print(Text(visible(prompt)), end="")
        return self._read()
