"""How a function takes its parameters, and whether it takes the context."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Callable

from .errors import InvalidArgument, InvalidParameters
from .parameters import (
    Reader,
    is_model,
    is_typed_dict,
    read_fields,
    reader_of,
    type_hints,
    wrong,
)

if TYPE_CHECKING:
    from .context import BaseContext

_CONTEXT_NAMES = ("ctx", "context")
_PARAMETERS = "parameter"


class Signature:
    """Of a task function, without its context."""

    def __init__(self, function: Callable[..., Any], what: str) -> None:
        self.signature = _signature(function)
        self.hints = type_hints(function)
        parameters = list(self.signature.parameters.values())
        self.takes_context = bool(parameters) and _is_context(parameters[0], self.hints)
        self.own = parameters[1:] if self.takes_context else parameters
        self.any_name = False
        self.readers: dict[str, Reader] = {}
        self.required: list[str] = []
        for parameter in self.own:
            if parameter.kind is parameter.VAR_POSITIONAL:
                raise InvalidArgument(
                    f"{what} takes *{parameter.name}, but parameters have names; "
                    f"write {parameter.name}: list"
                )
            if parameter.kind is parameter.VAR_KEYWORD:
                self.any_name = True
                continue
            try:
                self.readers[parameter.name] = reader_of(self.hints.get(parameter.name, Any))
            except TypeError as error:
                raise InvalidArgument(f"parameter {parameter.name!r} of {what}: {error}") from error
            if parameter.default is parameter.empty:
                self.required.append(parameter.name)
        # A single dataclass, TypedDict or model is the whole object.
        self.whole = len(self.own) == 1 and _is_object(self.hints.get(self.own[0].name))
        self._untyped = self.any_name and not self.readers
        self._positional = [p.name for p in self.own if p.kind is p.POSITIONAL_ONLY]

    def read(self, parameters: Mapping[str, Any]) -> tuple[list[Any], dict[str, Any]]:
        """The arguments of the function, without the context."""
        if self.whole:
            return [self.readers[self.own[0].name](parameters, _PARAMETERS)], {}
        if self._untyped:
            return [], dict(parameters)
        if self.any_name:
            known = {name: value for name, value in parameters.items() if name in self.readers}
            found = {**parameters, **read_fields(known, self.readers, self.required, _PARAMETERS)}
        else:
            found = read_fields(parameters, self.readers, self.required, _PARAMETERS)
        if not self._positional:
            return [], found
        return [found.pop(name) for name in self._positional if name in found], found

    def call(self, function: Callable[..., Any], context: BaseContext) -> Any:
        """The result of the function, or its coroutine, for a task."""
        args, kwargs = self.read(context.parameters)
        if self.takes_context:
            return function(context, *args, **kwargs)
        return function(*args, **kwargs)

    def parameters(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        """The parameters of a task that calls the function with these arguments."""
        without_context = self.signature.replace(parameters=self.own)
        try:
            bound = without_context.bind(*args, **kwargs)
        except TypeError as error:
            raise InvalidArgument(str(error)) from None
        if self.whole:
            (value,) = bound.arguments.values() or ({},)
            return value
        named = dict(bound.arguments)
        for parameter in self.own:
            if parameter.kind is parameter.VAR_KEYWORD:
                named.update(named.pop(parameter.name, {}))
        return named

    def check(self, parameters: Any) -> None:
        """Raises if these parameters, which are JSON, do not fit the function."""
        if not isinstance(parameters, dict):
            raise wrong("the parameters", "an object", parameters)
        self.read(parameters)


def _signature(function: Callable[..., Any]) -> inspect.Signature:
    if sys.version_info >= (3, 14):  # evaluates annotations only now
        import annotationlib

        return inspect.signature(function, annotation_format=annotationlib.Format.FORWARDREF)
    return inspect.signature(function)


def _is_context(parameter: inspect.Parameter, hints: Mapping[str, Any]) -> bool:
    from .context import BaseContext

    annotation = hints.get(parameter.name, parameter.annotation)
    if isinstance(annotation, type) and issubclass(annotation, BaseContext):
        return True
    if isinstance(annotation, str) and annotation.endswith(("Context", "AsyncContext")):
        return True  # imported for type checkers only
    return parameter.name in _CONTEXT_NAMES and not is_model(annotation)


def _is_object(annotation: Any) -> bool:
    return is_model(annotation) or is_typed_dict(annotation)


__all__ = ["InvalidParameters", "Signature"]
