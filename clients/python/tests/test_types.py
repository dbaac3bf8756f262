"""Parameters by annotations, their schema, and the options of tasks."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from enum import Enum
from typing import (
    TYPE_CHECKING,
    Any,
    Callable,
    Dict,
    List,
    Literal,
    NewType,
    Optional,
    Tuple,
    TypedDict,
    Union,
)
from uuid import UUID

import pydantic
import pytest

from task_engine import InvalidArgument, InvalidParameters, NewTask, task
from task_engine.durations import duration_text, milliseconds
from task_engine.parameters import reader_of
from task_engine.schema import parameters_schema
from task_engine.signature import Signature

if TYPE_CHECKING:
    from task_engine import Context


class Color(Enum):
    RED = "red"
    BLUE = 2


@dataclass
class Node:
    name: str
    children: List[Node] = field(default_factory=list)
    parent: Optional[Node] = None


class Options(TypedDict, total=False):
    width: int
    color: Color


class Address(pydantic.BaseModel):
    city: str
    zip: int = pydantic.Field(ge=1)


class Customer(pydantic.BaseModel):
    name: str
    address: Address


UserId = NewType("UserId", int)
ID = UUID(int=7)


@pytest.mark.parametrize(
    ("annotation", "value", "expected"),
    [
        (Any, {"a": 1}, {"a": 1}),
        (int, 7, 7),
        (float, 7, 7.0),
        (bool, True, True),
        (UserId, 7, 7),
        (Optional[int], None, None),
        (Union[int, str], "a", "a"),
        (Union[int, str, None], None, None),
        (List[int], [1], [1]),
        (Sequence[int], [1], [1]),
        (set, [1], {1}),
        (Tuple[int, str], [1, "a"], (1, "a")),
        (Tuple[int, ...], [1, 2], (1, 2)),
        (Dict[str, List[int]], {"a": [1]}, {"a": [1]}),
        (Literal["a", 1], 1, 1),
        (Color, "red", Color.RED),
        (Color, 2, Color.BLUE),
        (datetime, "2027-01-31T08:00:00Z", datetime(2027, 1, 31, 8, tzinfo=timezone.utc)),
        (date, "2027-01-31", date(2027, 1, 31)),
        (timedelta, "90s", timedelta(seconds=90)),
        (timedelta, 90, timedelta(seconds=90)),
        (Decimal, "1.10", Decimal("1.10")),
        (UUID, str(ID), ID),
        (Options, {"color": "red"}, {"color": Color.RED}),
        (Node, {"name": "a", "children": [{"name": "b"}]}, Node("a", [Node("b")])),
    ],
)
def test_reads_values_by_type(annotation: Any, value: Any, expected: Any) -> None:
    found = reader_of(annotation)(value, "parameter")
    assert (found, type(found)) == (expected, type(expected))


@pytest.mark.parametrize(
    ("annotation", "value", "message"),
    [
        (int, "7", 'expected a whole number, not "7"'),
        (int, 7.0, "expected a whole number, not 7.0"),
        (int, True, "expected a whole number, not true"),
        (str, None, "expected a text, not null"),
        (float, "x" * 100, "…"),
        (None, 1, "expected null"),
        (List[int], {"a": 1}, "expected a list"),
        (List[int], [1, "a"], 'parameter "1": expected a whole number'),
        (Tuple[int, str], [1], "expected a list of 2"),
        (Dict[str, int], {"a": "b"}, '"a": expected a whole number'),
        (Literal["a", 1], True, 'expected one of "a", 1, not true'),
        (Color, "green", 'expected one of "red", 2, not "green"'),
        (Union[int, bool], "a", 'expected a whole number, not "a"; or parameter: expected true'),
        (datetime, "soon", 'expected a time like "2027-01-31T08:00:00Z"'),
        (UUID, "x", "expected a UUID"),
        (Decimal, "x", "expected a decimal number"),
        (Options, {"widht": 1}, "\"widht\" is unknown; did you mean 'width'?"),
        (Node, {"name": "a", "children": [{"nme": "b"}]}, '"children[0].nme" is unknown'),
        (Node, {"children": []}, '"name" is missing'),
        (Customer, {"name": "a", "address": {"city": "b", "zip": 0}}, '"address.zip": Input'),
    ],
)
def test_wrong_values_name_their_place(annotation: Any, value: Any, message: str) -> None:
    with pytest.raises(InvalidParameters) as wrong:
        reader_of(annotation)(value, "parameter")
    assert message in str(wrong.value)


@pytest.mark.parametrize("annotation", [bytes, complex, Callable[[], int], List[bytes], object()])
def test_types_that_json_has_not_are_refused(annotation: Any) -> None:
    with pytest.raises(TypeError, match="cannot be read from JSON"):
        reader_of(annotation)


if sys.version_info >= (3, 10):

    def test_reads_unions_with_a_bar() -> None:
        assert reader_of(int | None)(None, "") is None
        assert reader_of(list[int | str])([1, "a"], "") == [1, "a"]


def arguments(function: Any, parameters: dict[str, Any]) -> tuple[list[Any], dict[str, Any]]:
    return Signature(function, "task f").read(parameters)


def test_one_model_is_the_whole_object() -> None:
    def by_model(customer: Customer) -> None: ...
    def by_dataclass(ctx: Any, node: Node) -> None: ...
    def by_typed_dict(options: Options) -> None: ...
    def by_two(node: Node, width: int = 1) -> None: ...

    customer = {"name": "a", "address": {"city": "b", "zip": 1}}
    address = Address(city="b", zip=1)
    assert arguments(by_model, customer) == ([Customer(name="a", address=address)], {})
    assert arguments(by_dataclass, {"name": "a"}) == ([Node("a")], {})
    assert arguments(by_typed_dict, {"width": 1}) == ([{"width": 1}], {})
    assert arguments(by_two, {"node": {"name": "a"}}) == ([], {"node": Node("a")})


def test_functions_take_what_they_name() -> None:
    def every(**parameters: Any) -> None: ...
    def some(a: int, /, b: int = 2, **rest: Any) -> None: ...
    def context_only(context: Any) -> None: ...
    def by_type(anything: Context, a: Missing) -> None: ...  # type: ignore[name-defined] # noqa: F821
    def several(*args: int) -> None: ...
    def binary(a: bytes) -> None: ...

    assert arguments(every, {"ctx": 1}) == ([], {"ctx": 1})
    assert arguments(some, {"a": 1, "c": 3}) == ([1], {"c": 3})
    assert arguments(context_only, {}) == ([], {})
    assert arguments(by_type, {"a": 1}) == ([], {"a": 1})
    with pytest.raises(InvalidArgument, match="takes \\*args, but parameters have names"):
        Signature(several, "task f")
    with pytest.raises(InvalidArgument, match="parameter 'a' of task f: the type bytes"):
        Signature(binary, "task f")


def test_schema_describes_the_parameters() -> None:
    def function(
        ctx: Any,
        node: Node,
        customer: Customer,
        ids: Tuple[int, str],
        named: Dict[str, int],
        anything: Any,
        color: Optional[Color] = None,
        mode: Literal["a", "b"] = "a",
        due: Optional[datetime] = None,
        many: Sequence[UserId] = (),
    ) -> None: ...

    schema = parameters_schema(Signature(function, "task f"))
    properties = schema["properties"]
    assert schema["required"] == ["node", "customer", "ids", "named", "anything"]
    assert schema["additionalProperties"] is False
    node = schema["$defs"]["Node"]
    assert node["properties"]["children"]["items"] == {"$ref": "#/$defs/Node"}
    assert node["required"] == ["name"]
    assert properties["customer"]["properties"]["address"] == {"$ref": "#/$defs/Address"}
    assert schema["$defs"]["Address"]["properties"]["zip"]["minimum"] == 1
    assert properties["ids"]["prefixItems"] == [{"type": "integer"}, {"type": "string"}]
    assert properties["named"]["additionalProperties"] == {"type": "integer"}
    assert properties["anything"] == {}
    assert properties["color"] == {
        "anyOf": [{"enum": ["red", 2]}, {"type": "null"}],
        "default": None,
    }
    assert properties["mode"] == {"enum": ["a", "b"], "default": "a"}
    assert properties["due"]["anyOf"][0] == {"type": "string", "format": "date-time"}
    assert properties["many"]["items"] == {"type": "integer"}

    def whole(options: Options) -> None: ...
    def every(**parameters: Any) -> None: ...

    schema = parameters_schema(Signature(whole, "task f"))
    assert schema["$ref"] == "#/$defs/Options"
    assert set(schema["$defs"]["Options"]["properties"]) == {"width", "color"}
    assert parameters_schema(Signature(every, "task f")) == {"type": "object", "properties": {}}


def test_options_are_those_of_the_file() -> None:
    @task(
        "every option",
        retry={"first_delay": timedelta(seconds=5), "cap": 3600, "jitter": 0.2},
        retries=3,
        timeout=timedelta(minutes=1),
        grace=1.5,
        queue="q",
        priority=1,
        result_bytes=10,
        log_lines=5,
        secret=("a.b",),
        limit={"max": 2, "key": "a"},
        rate={"max": 100, "per": timedelta(seconds=1)},
        in_order={"key": "a"},
        fair="a",
        limits=[{"name": "big", "max": 1, "rate": {"max": 1, "per": "1m"}}],
    )
    def function() -> None: ...

    assert function.options == {
        "retry": {"first_delay": "5s", "cap": "3600s", "jitter": 0.2, "maximum": 3},
        "timeout": "60s",
        "grace": "1500ms",
        "queue": "q",
        "priority": 1,
        "result_bytes": 10,
        "log_lines": 5,
        "secret": ["a.b"],
        "limit": {"max": 2, "key": "a"},
        "rate": {"max": 100, "per": "1s"},
        "in_order": {"key": "a"},
        "fair": "a",
        "limits": [{"name": "big", "max": 1, "rate": {"max": 1, "per": "60s"}}],
    }


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"retries": 1, "retry": {"maximum": 2}}, "pass one of them"),
        ({"secret": "a"}, r"secret=\['a'\]"),
        ({"timeout": "soon"}, "is not a duration"),
        ({"name": test_options_are_those_of_the_file}, "with parentheses"),
    ],
)
def test_wrong_options_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidArgument, match=message):
        task(**options)
    with pytest.raises(TypeError, match="retires"):
        task("a", retires=5)  # type: ignore[call-arg]


def test_two_functions_of_a_name_are_refused() -> None:
    @task("of two")
    def one() -> int:
        return 1

    with pytest.raises(InvalidArgument, match="two functions are registered as task 'of two'"):

        @task("of two")
        def two() -> None: ...

    @task()
    def named_after_function() -> None: ...

    assert (one.name, one(), named_after_function.name) == ("of two", 1, "named_after_function")


def test_parameters_may_be_a_model() -> None:
    body = NewTask("a", Node("x")).body_text({"class": "a"})
    assert body == '{"parameters":{"name":"x","children":[],"parent":null},"class":"a"}'


@pytest.mark.parametrize(
    ("duration", "text"),
    [
        ("1h30m", "5400s"),
        ("1 h, 30 min", "5400s"),
        ("2 days", "172800s"),
        ("250ms", "250ms"),
        (0.0001, "1ms"),
        (timedelta(hours=1), "3600s"),
    ],
)
def test_durations(duration: Any, text: str) -> None:
    assert duration_text(duration) == text
    assert milliseconds(text) == milliseconds(duration)
    for wrong in ("", "5", "5 parsecs", "s", None, True, float("nan"), "-5s"):
        with pytest.raises(InvalidArgument, match="is not a duration"):
            duration_text(wrong)  # type: ignore[arg-type]
