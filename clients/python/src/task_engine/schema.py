"""The JSON Schema of the parameters of a task, from its annotations."""

from __future__ import annotations

import collections.abc
import dataclasses
import inspect
import types
import typing
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from typing import Any, Literal, Union
from uuid import UUID

from .json_values import encode
from .parameters import is_typed_dict, type_hints
from .signature import Signature

__all__ = ["parameters_schema"]

_SCALARS: dict[Any, dict[str, Any]] = {
    str: {"type": "string"},
    int: {"type": "integer"},
    float: {"type": "number"},
    bool: {"type": "boolean"},
    type(None): {"type": "null"},
    datetime: {"type": "string", "format": "date-time"},
    date: {"type": "string", "format": "date"},
    time: {"type": "string", "format": "time"},
    timedelta: {"type": ["string", "number"]},
    UUID: {"type": "string", "format": "uuid"},
    Decimal: {"type": ["string", "number"]},
}
_ABC = collections.abc
_LISTS = (list, set, frozenset, tuple, _ABC.Sequence, _ABC.Iterable, _ABC.Collection)
_LISTS_TOO = (_ABC.MutableSequence, _ABC.Set)
_OBJECTS = (dict, collections.abc.Mapping, collections.abc.MutableMapping)
_UNIONS = (Union, getattr(types, "UnionType", Union))


def parameters_schema(signature: Signature) -> dict[str, Any]:
    """The schema of the object with the parameters."""
    definitions: dict[str, Any] = {}
    if signature.whole:
        schema = _schema(signature.hints[signature.own[0].name], definitions)
    else:
        properties = {}
        for parameter in signature.own:
            if parameter.name not in signature.readers:
                continue
            field = dict(_schema(signature.hints.get(parameter.name, Any), definitions))
            if parameter.default is not inspect.Parameter.empty:
                _add_default(field, parameter.default)
            properties[parameter.name] = field
        schema = _object(properties, signature.required, closed=not signature.any_name)
    return {**schema, "$defs": definitions} if definitions else schema


def _schema(annotation: Any, definitions: dict[str, Any]) -> dict[str, Any]:
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if annotation is None:
        annotation = type(None)
    if annotation in _SCALARS:
        return _SCALARS[annotation]
    if hasattr(annotation, "__supertype__"):
        return _schema(annotation.__supertype__, definitions)
    if hasattr(annotation, "__value__"):
        return _schema(annotation.__value__, definitions)
    if hasattr(annotation, "__metadata__"):
        return _schema(annotation.__origin__, definitions)
    if str(origin) in ("typing.Required", "typing.NotRequired"):
        return _schema(arguments[0], definitions)
    if origin in _UNIONS:
        return {"anyOf": [_schema(member, definitions) for member in arguments]}
    if origin is Literal:
        return {"enum": list(arguments)}
    if isinstance(annotation, type) and issubclass(annotation, Enum):
        return {"enum": [member.value for member in annotation]}
    if hasattr(annotation, "model_json_schema"):
        return _pydantic(annotation, definitions)
    if dataclasses.is_dataclass(annotation) or is_typed_dict(annotation):
        return _named(annotation, definitions)
    container = origin or annotation
    if container in _OBJECTS:
        values = _schema(arguments[1], definitions) if arguments else {}
        return {"type": "object", "additionalProperties": values} if values else {"type": "object"}
    if container in _LISTS or container in _LISTS_TOO:
        return _list(container, arguments, definitions)
    return {}


def _list(
    container: Any, arguments: tuple[Any, ...], definitions: dict[str, Any]
) -> dict[str, Any]:
    if container is tuple and arguments and arguments[-1] is not Ellipsis:
        items = [_schema(argument, definitions) for argument in arguments]
        return {"type": "array", "prefixItems": items, "minItems": len(items), "items": False}
    schema: dict[str, Any] = {"type": "array"}
    if arguments and (element := _schema(arguments[0], definitions)):
        schema["items"] = element
    return schema


def _named(annotation: Any, definitions: dict[str, Any]) -> dict[str, Any]:
    """A dataclass or TypedDict, as a definition, because it may contain itself."""
    name = annotation.__name__
    if name not in definitions:
        definitions[name] = {}
        hints = type_hints(annotation)
        properties: dict[str, Any] = {}
        if dataclasses.is_dataclass(annotation):
            required = []
            for field in dataclasses.fields(annotation):
                if not field.init:
                    continue
                properties[field.name] = dict(_schema(hints.get(field.name, Any), definitions))
                if field.default is not dataclasses.MISSING:
                    _add_default(properties[field.name], field.default)
                elif field.default_factory is dataclasses.MISSING:
                    required.append(field.name)
        else:
            properties = {key: _schema(hint, definitions) for key, hint in hints.items()}
            required = sorted(annotation.__required_keys__)
        definitions[name] = _object(properties, required, closed=True)
    return {"$ref": f"#/$defs/{name}"}


def _pydantic(model: Any, definitions: dict[str, Any]) -> dict[str, Any]:
    schema: dict[str, Any] = model.model_json_schema()
    definitions.update(schema.pop("$defs", {}))
    return schema


def _object(properties: dict[str, Any], required: list[str], closed: bool) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "object", "properties": properties}
    if required:
        schema["required"] = required
    if closed:
        schema["additionalProperties"] = False
    return schema


def _add_default(field: dict[str, Any], default: Any) -> None:
    try:
        encode(default)
    except ValueError:
        return
    field["default"] = default
