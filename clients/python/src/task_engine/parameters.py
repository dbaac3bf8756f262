"""Reads JSON values by type annotations: the parameters of a function, and results."""

from __future__ import annotations

import collections.abc
import dataclasses
import inspect
import sys
import types
import typing
from collections.abc import Mapping
from datetime import date, datetime, time, timedelta
from decimal import Decimal, InvalidOperation
from enum import Enum
from typing import Any, Callable, Literal, Optional, Union
from uuid import UUID

from .durations import milliseconds
from .errors import InvalidParameters
from .json_values import encode
from .suggest import did_you_mean

__all__ = ["Reader", "is_model", "is_typed_dict", "reader_of", "type_hints"]

Reader = Callable[[Any, str], Any]
"""Reads a value; the text names its place in messages."""

_NAMES = {str: "a text", int: "a whole number", bool: "true or false", float: "a number"}
_UNIONS = (Union, getattr(types, "UnionType", Union))
_LISTS: dict[Any, Callable[[list[Any]], Any]] = {
    list: list,
    set: set,
    frozenset: frozenset,
    collections.abc.Sequence: list,
    collections.abc.Iterable: list,
    collections.abc.Collection: list,
    collections.abc.MutableSequence: list,
    collections.abc.Set: set,
}
_OBJECTS = (dict, collections.abc.Mapping, collections.abc.MutableMapping)


def is_model(annotation: Any) -> bool:
    """Whether it is a dataclass, or a model of pydantic, which is not imported for this."""
    return isinstance(annotation, type) and (
        dataclasses.is_dataclass(annotation) or hasattr(annotation, "model_validate")
    )


def is_typed_dict(annotation: Any) -> bool:
    return isinstance(annotation, type) and hasattr(annotation, "__total__")


def type_hints(of: Any) -> dict[str, Any]:
    """The annotations of a function or class. What cannot be resolved has none: it may be
    imported for type checkers only."""
    try:
        return typing.get_type_hints(of, include_extras=True)
    except NameError:
        pass
    scope = getattr(of, "__globals__", None) or vars(sys.modules[of.__module__])
    hints: dict[str, Any] = {}
    for name, annotation in _annotations(of).items():
        holder = types.SimpleNamespace(__annotations__={name: annotation})
        try:
            hints.update(typing.get_type_hints(holder, scope, include_extras=True))
        except NameError:
            continue
    return hints


def _annotations(of: Any) -> dict[str, Any]:
    if sys.version_info >= (3, 14):
        import annotationlib

        return annotationlib.get_annotations(of, format=annotationlib.Format.FORWARDREF)
    return dict(of.__annotations__)


def reader_of(annotation: Any) -> Reader:
    """How to read a value of this type. Raises a TypeError for types that JSON cannot hold."""
    origin = typing.get_origin(annotation)
    arguments = typing.get_args(annotation)
    if annotation in (Any, object, inspect.Parameter.empty) or isinstance(
        annotation, typing.TypeVar
    ):
        return lambda value, _: value
    if annotation in _NAMES:
        return _scalar(annotation)
    if annotation in (None, type(None)):
        return _none
    if annotation in _TEXTS:
        return _text(annotation)
    if hasattr(annotation, "__supertype__"):
        return reader_of(annotation.__supertype__)
    if str(origin) in ("typing.Annotated", "typing.Required", "typing.NotRequired"):
        return reader_of(arguments[0])
    if hasattr(annotation, "__metadata__"):  # Annotated
        return reader_of(annotation.__origin__)
    if hasattr(annotation, "__value__"):  # type X = ...
        return reader_of(annotation.__value__)
    if origin in _UNIONS:
        return _union(arguments)
    if origin is Literal:
        return _one_of(arguments, {_json_key(value): value for value in arguments})
    if isinstance(annotation, type) and issubclass(annotation, Enum):
        members = list(annotation)
        return _one_of([m.value for m in members], {_json_key(m.value): m for m in members})
    if hasattr(annotation, "model_validate"):
        return _pydantic(annotation)
    if dataclasses.is_dataclass(annotation) or is_typed_dict(annotation):
        return _lazily(lambda: _object(annotation))
    container = origin or annotation
    if container is tuple:
        return _tuple(arguments)
    if container in _LISTS:
        return _list(_LISTS[container], arguments[0] if arguments else Any)
    if container in _OBJECTS:
        return _dict(arguments)
    raise TypeError(
        f"the type {getattr(annotation, '__name__', annotation)} cannot be read from JSON; use a "
        "type of JSON, a dataclass, a TypedDict, a model of pydantic, an Enum or a datetime"
    )


def wrong(place: str, expected: str, value: Any) -> InvalidParameters:
    try:
        text = encode(value)
    except ValueError:
        text = repr(value)
    shown = text if len(text) <= 60 else f"{text[:60]}…"
    return InvalidParameters(f"{place}: expected {expected}, not {shown}")


def inside(place: str, key: Union[str, int]) -> str:
    """The place of an element: `parameter "order.items[2]"`."""
    step = f"[{key}]" if isinstance(key, int) else f".{key}"
    return f'{place[:-1]}{step}"' if place.endswith('"') else f'{place} "{key}"'


def read_fields(
    value: Mapping[str, Any],
    readers: Mapping[str, Reader],
    required: collections.abc.Collection[str],
    place: str,
) -> dict[str, Any]:
    """Reads the fields of an object: no unknown ones, and all that are required."""
    for name in value:
        if name not in readers:
            known = ", ".join(readers) or "none"
            hint = did_you_mean(name, readers)
            raise InvalidParameters(f"{inside(place, name)} is unknown{hint}; known: {known}")
    for name in required:
        if name not in value:
            raise InvalidParameters(f"{inside(place, name)} is missing")
    return {name: readers[name](field, inside(place, name)) for name, field in value.items()}


def _scalar(kind: type) -> Reader:
    expected = _NAMES[kind]
    kinds: Any = (int, float) if kind is float else kind

    def read(value: Any, place: str) -> Any:
        if isinstance(value, kinds) and (kind is bool or not isinstance(value, bool)):
            return float(value) if kind is float else value
        raise wrong(place, expected, value)

    return read


def _none(value: Any, place: str) -> None:
    if value is not None:
        raise wrong(place, "null", value)


def _from_iso(kind: Any) -> Callable[[str], Any]:
    # Before Python 3.11, fromisoformat knows no Z.
    return lambda text: kind.fromisoformat(text[:-1] + "+00:00" if text.endswith("Z") else text)


_TEXTS: dict[Any, tuple[Callable[[str], Any], str]] = {
    datetime: (_from_iso(datetime), 'a time like "2027-01-31T08:00:00Z"'),
    date: (date.fromisoformat, 'a date like "2027-01-31"'),
    time: (_from_iso(time), 'a time of day like "08:30:00"'),
    timedelta: (lambda text: timedelta(milliseconds=milliseconds(text)), 'a duration like "30s"'),
    UUID: (UUID, "a UUID"),
    Decimal: (Decimal, "a decimal number"),
}


def _text(kind: type) -> Reader:
    parse, expected = _TEXTS[kind]

    def read(value: Any, place: str) -> Any:
        number = kind in (timedelta, Decimal) and type(value) in (int, float)
        try:
            if isinstance(value, str) or number:
                return parse(str(value) if kind is Decimal else value)
        except (ValueError, InvalidOperation):
            pass
        raise wrong(place, expected, value)

    return read


def _union(members: tuple[Any, ...]) -> Reader:
    others = [reader_of(member) for member in members if member is not type(None)]
    optional = len(others) < len(members)
    if len(others) == 1:
        (only,) = others
        return lambda value, place: None if value is None else only(value, place)

    def read(value: Any, place: str) -> Any:
        if value is None and optional:
            return None
        reasons = []
        for reader in others:
            try:
                return reader(value, place)
            except InvalidParameters as error:
                reasons.append(str(error))
        raise InvalidParameters("; or ".join(reasons))

    return read


def _json_key(value: Any) -> str:
    """Tells 1, true and "1" apart."""
    return encode(value)


def _one_of(values: typing.Iterable[Any], members: Mapping[str, Any]) -> Reader:
    expected = "one of " + ", ".join(encode(value) for value in values)

    def read(value: Any, place: str) -> Any:
        key = encode(value)
        if key not in members:
            raise wrong(place, expected, value)
        return members[key]

    return read


def _list(make: Callable[[list[Any]], Any], element: Any) -> Reader:
    reader = reader_of(element)

    def read(value: Any, place: str) -> Any:
        if not isinstance(value, list):
            raise wrong(place, "a list", value)
        return make([reader(item, inside(place, at)) for at, item in enumerate(value)])

    return read


def _tuple(elements: tuple[Any, ...]) -> Reader:
    if not elements or elements[-1] is Ellipsis:
        return _list(tuple, elements[0] if elements else Any)
    readers = [reader_of(element) for element in elements]

    def read(value: Any, place: str) -> Any:
        if not isinstance(value, list) or len(value) != len(readers):
            raise wrong(place, f"a list of {len(readers)}", value)
        pairs = enumerate(zip(readers, value))
        return tuple(reader(item, inside(place, at)) for at, (reader, item) in pairs)

    return read


def _dict(arguments: tuple[Any, ...]) -> Reader:
    of_key, of_value = (reader_of(a) for a in (arguments or (str, Any)))

    def read(value: Any, place: str) -> Any:
        if not isinstance(value, dict):
            raise wrong(place, "an object", value)
        return {of_key(k, place): of_value(v, inside(place, k)) for k, v in value.items()}

    return read


def _object(annotation: Any) -> Reader:
    """A dataclass or TypedDict."""
    hints = type_hints(annotation)
    if dataclasses.is_dataclass(annotation):
        fields = [field for field in dataclasses.fields(annotation) if field.init]
        readers = {field.name: reader_of(hints.get(field.name, Any)) for field in fields}
        missing = dataclasses.MISSING
        required = [f.name for f in fields if f.default is missing and f.default_factory is missing]
    else:
        readers = {name: reader_of(hint) for name, hint in hints.items()}
        required = list(annotation.__required_keys__)

    def read(value: Any, place: str) -> Any:
        if not isinstance(value, dict):
            raise wrong(place, "an object", value)
        found = read_fields(value, readers, required, place)
        try:
            return annotation(**found)
        except InvalidParameters:
            raise
        except (ValueError, TypeError) as error:  # of __post_init__
            raise InvalidParameters(f"{place}: {error}") from error

    return read


def _pydantic(model: Any) -> Reader:
    def read(value: Any, place: str) -> Any:
        try:
            return model.model_validate(value)
        except ValueError as error:
            problems: list[Any] = getattr(error, "errors", list)()
            if not problems:
                raise InvalidParameters(f"{place}: {error}") from error
            said = []
            for problem in problems:
                at = place
                for key in problem["loc"]:
                    at = inside(at, key)
                said.append(f"{at}: {problem['msg']}")
            raise InvalidParameters("; ".join(said)) from None

    return read


def _lazily(make: Callable[[], Reader]) -> Reader:
    """A type may contain itself, so its fields are looked at when they are first read."""
    made: Optional[Reader] = None

    def read(value: Any, place: str) -> Any:
        nonlocal made
        if made is None:
            made = make()
        return made(value, place)

    return read
