"""What a tool's function takes, as its signature says it: the input schema, and arguments made into values."""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable, Iterator, Mapping
from typing import Annotated, Any, get_origin

from pydantic import BaseModel, ConfigDict, Field, ValidationError, create_model
from pydantic.errors import PydanticUserError

from app.domain.task import Json
from app.errors import InvalidArguments
from app.tools.context import SyncToolContext, ToolContext
from app.tools.docstrings import read_docstring
from app.tools.header_params import header_params
from app.tools.schemas import Unresolved, alternatives, first_line, schema_of, unresolved
from app.tools.validation import SchemaValidator, located, written

_EXACT = 2**53  # beyond it, neighbouring integers are the same double
_LISTED = 5


class Inputs:
    """The arguments that a function takes.

    Args:
        given: the schema that its author has written; None for the one that the parameters make.

    Attributes:
        schema: the tool's `inputSchema`; unknown arguments do not fit the one that the parameters make.
        context: the name of the parameter that gets the context, None for none.
        returns: the resolved return annotation; `inspect.Signature.empty` where there is none.

    Raises:
        Unresolved: an annotation names something that is not defined.
        ValueError: the function cannot be a tool as it is; the message says what to change.
    """

    def __init__(
        self,
        fn: Callable[..., Any],
        local_names: Mapping[str, Any] | None = None,
        given: dict[str, Any] | None = None,
    ) -> None:
        hints = _hints(fn, local_names)
        self.returns = hints.get("return", inspect.Signature.empty)
        parameters = dict(_typed_parameters(fn, hints))
        self.context = _context(fn, parameters)
        parameters.pop(self.context or "", None)
        about = read_docstring(fn.__doc__)[1]
        fields = {f"p{at}": _field(p, about.get(p.name)) for at, p in enumerate(parameters.values())}
        self._names = dict(zip(fields, parameters, strict=True))
        self._model, made = _model(fields, self._names)
        self.schema = made if given is None else given
        self._validator = SchemaValidator(self.schema)
        _check_given(self.schema, made)
        header_params(self.schema)  # refuses what clients would hide the tool for

    def bind(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """Make the arguments of a call into values of the parameters' types, defaults filled in.

        Raises:
            InvalidArguments: they do not fit; the message names the fields and never repeats a value.
        """
        try:
            text = self._validator.fitting(arguments)
        except ValueError as misfit:
            raise InvalidArguments(str(misfit)) from None
        if not arguments and not self._names:
            return {}
        try:
            model = self._read(arguments, text)
        except ValidationError as error:
            reasons = [located(e["loc"], e["msg"]) for e in error.errors(include_url=False, include_input=False)]
            raise InvalidArguments("; ".join(reasons[:_LISTED])) from None
        return {name: getattr(model, field) for field, name in self._names.items()}

    def _read(self, arguments: dict[str, Any], text: Json) -> BaseModel:
        """Read strictly, as JSON; where that fails, with 1.0 for 1, which JSON Schema takes for an integer."""
        try:
            return self._model.model_validate_json(text, strict=True)
        except ValidationError:
            return self._model.model_validate_json(written(_whole(arguments)), strict=True)


def is_async(fn: Callable[..., Any]) -> bool:
    """Whether calling the function gives something to await, also through a decorator that is a plain function."""
    return inspect.iscoroutinefunction(fn) or inspect.iscoroutinefunction(inspect.unwrap(fn))


def _hints(fn: Callable[..., Any], local_names: Mapping[str, Any] | None) -> dict[str, Any]:
    try:
        return typing.get_type_hints(fn, localns=local_names and dict(local_names), include_extras=True)
    except NameError as error:
        raise Unresolved(
            f"the annotations name {error.name!r}, which is not defined; import it outside of `if TYPE_CHECKING`"
        ) from error
    except (TypeError, SyntaxError) as error:
        raise ValueError(f"the annotations cannot be read: {error}") from error


def _typed_parameters(fn: Callable[..., Any], hints: dict[str, Any]) -> Iterator[tuple[str, inspect.Parameter]]:
    for name, parameter in inspect.signature(fn).parameters.items():
        if parameter.kind in (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD):
            raise ValueError(f"parameter {name!r} takes any number of arguments; name each one")
        if parameter.kind is inspect.Parameter.POSITIONAL_ONLY:
            raise ValueError(f"parameter {name!r} is positional-only, but arguments are passed by name")
        if name not in hints:
            raise ValueError(f"parameter {name!r} has no type; annotate it")
        yield name, parameter.replace(annotation=hints[name])


def _context(fn: Callable[..., Any], parameters: dict[str, inspect.Parameter]) -> str | None:
    found = {name: kinds for name, p in parameters.items() if (kinds := _context_kinds(p.annotation))}
    if len(found) > 1:
        raise ValueError(f"parameters {' and '.join(map(repr, found))} both take the context; keep one")
    if is_async(fn) and any(SyncToolContext in kinds for kinds in found.values()):
        raise ValueError("a SyncToolContext is for `def`; an `async def` takes a ToolContext")
    return next(iter(found), None)


def _context_kinds(hint: Any) -> set[type]:
    return {kind for kind in alternatives(hint) if kind in (ToolContext, SyncToolContext)}


def _field(parameter: inspect.Parameter, description: str | None) -> Any:
    """The field for a parameter: what its author says in `Field` goes before its name and its docstring."""
    hint = parameter.annotation
    kind, extras = (hint.__origin__, hint.__metadata__) if get_origin(hint) is Annotated else (hint, ())
    annotated: Any = Annotated  # a type checker wants no value here
    annotation = annotated[kind, Field(alias=parameter.name, description=description), *extras]
    return annotation if parameter.default is parameter.empty else (annotation, parameter.default)


def _model(fields: dict[str, Any], names: dict[str, str]) -> tuple[type[BaseModel], dict[str, Any]]:
    """Field names of our own, because a parameter may be called as a model's method is."""
    try:
        model = create_model("Arguments", __config__=ConfigDict(extra="forbid"), **fields)
        return model, schema_of(model, "validation")
    except (PydanticUserError, NameError, TypeError, ValueError) as error:
        if unresolved(error):
            raise Unresolved(f"a parameter's type is not fully defined: {first_line(error)}") from error
        if len(fields) == 1:
            name = names[next(iter(fields))]
            raise ValueError(f"parameter {name!r} cannot be read from JSON: {first_line(error)}") from error
        for field, definition in fields.items():
            _model({field: definition}, names)
        raise ValueError(f"the parameters cannot be read from JSON: {first_line(error)}") from error


def _check_given(given: dict[str, Any], made: dict[str, Any]) -> None:
    """Refuse an author's schema that is none of arguments, or whose arguments the parameters do not take."""
    if given.get("type") != "object":
        raise ValueError('input_schema must have "type": "object"')
    for name in given.get("properties", {}):
        if name not in made["properties"]:
            raise ValueError(f"input_schema has the property {name!r}, but there is no such parameter")


def _whole(value: Any) -> Any:
    """The value with each float that is an integer, and surely the one that was written, as an int."""
    if isinstance(value, dict):
        return {key: _whole(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_whole(inner) for inner in value]
    return int(value) if isinstance(value, float) and value.is_integer() and abs(value) < _EXACT else value
