"""One field of a form in the terminal: what is said of it, and how what the user types is read."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import Any

from app.tools.validation import SchemaValidator

_WORDS = {
    "integer": "a whole number",
    "number": "a number",
    "boolean": "yes or no",
    "array": "some of them, with commas between",
    "email": "an e-mail address",
    "uri": "a URI",
    "date": "such as 2026-12-31",
    "date-time": "such as 2026-12-31T18:00:00Z",
}
_YES, _NO = {"y", "yes", "true"}, {"n", "no", "false"}


def flaw_of(schema: dict[str, Any], value: Any) -> str | None:
    """Why a value does not fit; None for one that does, and where the schema is none that can be used."""
    try:
        return SchemaValidator(schema).check(value)
    except ValueError:
        return None


@dataclass(frozen=True)
class Field:
    """A property of a form.

    Attributes:
        default: what an empty line stands for, None for nothing.
    """

    name: str
    schema: dict[str, Any]
    required: bool
    default: Any

    def explained(self) -> list[str]:
        """What is said before the field is asked for."""
        said = [self.schema["description"]] if isinstance(self.schema.get("description"), str) else []
        return said + [f"  {number} {title}" for number, (_, title) in enumerate(self._choices(), 1)]

    def prompt(self) -> str:
        """What stands before what the user types."""
        kind = self.schema.get("type")
        words = [_WORDS.get(str(self.schema.get("format", kind)), ""), "" if self.required else "optional"]
        about = ", ".join(filter(None, words))
        prompt = str(self.schema.get("title", self.name)) + (f" ({about})" if about else "")
        return prompt if self.default is None else f"{prompt} [{self._written(self.default)}]"

    def read(self, text: str) -> Any:
        """The value that a text stands for, None for none.

        Raises:
            ValueError: it is none that the field takes; the message says why.
        """
        if not text.strip():
            if self.default is None and self.required:
                raise ValueError("This cannot be left out.")
            return self.default
        value = self._parsed(text)
        flaw = flaw_of(self.schema, value)
        if flaw is not None:
            raise ValueError(f"This does not fit: {flaw}")
        return value

    def _parsed(self, text: str) -> Any:
        if self.schema.get("type") == "array":
            return [self._chosen(part.strip()) for part in text.split(",") if part.strip()]
        if self._choices():
            return self._chosen(text.strip())
        match self.schema.get("type"):
            case "string":
                return text
            case "boolean":
                return _boolean(text.strip().lower())
            case "integer":
                return _number(text, int)
            case "number":
                return _number(text, float)
            case _:
                return _json(text)

    def _choices(self) -> list[tuple[Any, str]]:
        """Values and titles that are offered."""
        items = self.schema.get("items")
        schema = items if isinstance(items, dict) else self.schema
        titled = [each for each in [*schema.get("oneOf", []), *schema.get("anyOf", [])] if "const" in each]
        if titled:
            return [(each["const"], str(each.get("title", each["const"]))) for each in titled]
        values = schema.get("enum", [])
        return list(zip(values, schema.get("enumNames", map(str, values)), strict=False))

    def _chosen(self, text: str) -> Any:
        """The choice of this value, this title or this number, in that order."""
        choices = self._choices()
        for value, title in choices:
            if text in (value, title) or text.lower() == title.lower():
                return value
        if text.isdecimal() and 0 < int(text) <= len(choices):
            return choices[int(text) - 1][0]
        raise ValueError(f"Type a number from 1 to {len(choices)}.")

    def _written(self, value: Any) -> str:
        if isinstance(value, bool):
            return "yes" if value else "no"
        if isinstance(value, list):
            return ", ".join(map(str, value))
        return str(value)


def _boolean(text: str) -> bool:
    if text not in _YES | _NO:
        raise ValueError("Type yes or no.")
    return text in _YES


def _number(text: str, kind: type[int] | type[float]) -> int | float:
    try:
        value: int | float = int(text)
    except ValueError:
        if kind is int:
            raise ValueError("Type a whole number.") from None
        value = _float(text)
    return value


def _float(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise ValueError("Type a number.")
    return value


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        raise ValueError("Type a JSON value.") from None
