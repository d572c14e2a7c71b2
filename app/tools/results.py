"""What a tool returns, made into a CallToolResult as JSON text (core, "Tool Result"): exactly, or not at all."""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable, Sequence
from functools import lru_cache
from types import GenericAlias, NoneType
from typing import Any, Union, get_args, get_origin

from mcp_types import AudioContent, CallToolResult, EmbeddedResource, ImageContent, ResourceLink, TextContent
from pydantic import ConfigDict, TypeAdapter
from pydantic.errors import PydanticUserError

from app.domain.task import Json
from app.errors import UnusableResult
from app.tools.schemas import Unresolved, alternatives, first_line, schema_of, unresolved
from app.tools.validation import SchemaValidator, written
from app.wire.envelope import dumps

_BLOCKS = (TextContent, ImageContent, AudioContent, ResourceLink, EmbeddedResource)
_LISTS = (list, tuple, Sequence)
_ANYTHING = (inspect.Signature.empty, Any, object)
_UNSTRUCTURED = (*_ANYTHING, *_BLOCKS, CallToolResult, str, None, NoneType, typing.NoReturn, typing.Never)


class Outputs:
    """The results of a tool with this return type.

    Text, content blocks, a whole CallToolResult and None go to `content` as they are. A tool that is declared to return
    anything else has an output schema; its values go to `structuredContent`, and as JSON to a text block.

    Attributes:
        schema: the tool's `outputSchema`, None for none.

    Raises:
        Unresolved: the type names something that is not defined.
        ValueError: values of the type cannot be written as JSON.
    """

    def __init__(self, returns: Any) -> None:
        kinds = list(alternatives(returns))
        self.schema: dict[str, Any] | None = None
        self._lists_are_content = not any(kind in _ANYTHING for kind in kinds)
        if all(map(_is_unstructured, kinds)):
            return
        if CallToolResult in kinds:
            returns = Union[tuple(kind for kind in kinds if kind is not CallToolResult)]  # noqa: UP007
        try:
            self.schema = schema_of(returns, "serialization")
            self._writer = _writer(returns)
        except (PydanticUserError, NameError, TypeError, ValueError) as error:
            if unresolved(error):
                raise Unresolved(f"the returned type is not fully defined: {first_line(error)}") from error
            raise ValueError(f"what it returns cannot be written as JSON: {first_line(error)}") from error
        self._validator = SchemaValidator(self.schema)

    def result(self, value: Any) -> Json:
        """Make a returned value into a complete CallToolResult.

        Raises:
            UnusableResult: JSON cannot hold the value as it is, or it does not fit the output schema. The message names
                the field and repeats no value.
        """
        if isinstance(value, CallToolResult):
            return self._whole(value)
        if self.schema is not None:
            data = _dump(value, self._writer)
            self._check(data)
            return _structured(data)
        if isinstance(value, str):
            return _one_text(value)
        blocks = self._blocks(value)
        return _structured(_dump(value)) if blocks is None else _written(_complete(blocks))

    def _blocks(self, value: Any) -> list[Any] | None:
        """The content blocks that a value is, None where it is data."""
        if value is None:
            return []
        blocks = value if isinstance(value, list | tuple) else [value]
        if all(isinstance(block, _BLOCKS) for block in blocks) and (blocks or self._lists_are_content):
            return [_dump(block, exclude_none=True) for block in blocks]
        return None

    def _whole(self, value: CallToolResult) -> Json:
        data = _dump(value, exclude_none=True, exclude={0: {"structured_content"}})
        if value.structured_content is not None:
            data["structuredContent"] = _dump(value.structured_content)
        if self.schema is not None and not value.is_error:
            self._check(data.setdefault("structuredContent", None))
        return _written({**data, "resultType": "complete"})

    def _check(self, data: Any) -> None:
        if reason := self._validator.check(data):
            raise UnusableResult(f"The tool's result does not fit its output schema: {reason}")


def error_result(text: str) -> Json:
    """The result of a tool that says it failed. Never fails itself: what is no Unicode in the text is escaped."""
    readable = text.encode("utf-8", "backslashreplace").decode()
    return dumps(_complete([_text(readable)], is_error=True))


def _complete(blocks: list[Any], *, is_error: bool = False) -> dict[str, Any]:
    return {"content": blocks, "isError": is_error, "resultType": "complete"}


def _text(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


def _one_text(text: str) -> Json:
    try:
        shown = written(text)
    except ValueError as error:
        raise UnusableResult(f"The tool's result cannot be written as JSON: content[0].text: {error}") from error
    return Json(f'{{"content":[{{"type":"text","text":{shown}}}],"isError":false,"resultType":"complete"}}')


def _structured(data: Any) -> Json:
    text = _written(data)
    block = dumps(_text(text))
    return Json(f'{{"content":[{block}],"structuredContent":{text},"isError":false,"resultType":"complete"}}')


def _written(data: Any) -> Json:
    try:
        return written(data)
    except ValueError as error:
        raise UnusableResult(f"The tool's result cannot be written as JSON: {error}") from error


def _dump(value: Any, writer: TypeAdapter[Any] | None = None, **options: Any) -> Any:
    """Turn a value into what JSON has, by its declared type or else its own."""
    try:
        writer = writer or _writer_of(type(value))
        return writer.dump_python((value,), mode="json", by_alias=True, warnings=False, **options)[0]
    except Exception as error:  # the types' serializers are the author's code
        raise UnusableResult(f"The tool's result cannot be written as JSON ({type(error).__name__})") from error


def _writer(hint: Any) -> TypeAdapter[Any]:
    """In a tuple, because only a type without a configuration of its own can be told not to write NaN as null."""
    wrapped: Any = GenericAlias(tuple, (hint,))
    return TypeAdapter(wrapped, config=ConfigDict(ser_json_inf_nan="constants"))


_writer_of: Callable[[Any], TypeAdapter[Any]] = lru_cache(maxsize=128)(_writer)


def _is_unstructured(kind: Any) -> bool:
    if get_origin(kind) in _LISTS:
        items = [item for argument in get_args(kind) if argument is not ... for item in alternatives(argument)]
        return bool(items) and all(item in _BLOCKS for item in items)
    return kind in _UNSTRUCTURED


def says_error(result: Json) -> bool:
    """Whether a CallToolResult that was made here has isError. Within a string the quotes would be escaped; structured
    content with a member of that name that is true counts as an error too."""
    return '"isError":true' in result
