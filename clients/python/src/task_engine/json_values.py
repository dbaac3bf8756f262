"""Values as JSON: what tasks return, and what they are created with."""

from __future__ import annotations

import dataclasses
import json
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from typing import Any
from uuid import UUID

from .durations import duration_text

__all__ = ["encode", "encode_text"]


def _plain(value: Any) -> Any:
    """What JSON has no form for, as something that it has one for."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    if hasattr(value, "model_dump"):  # pydantic, which is not imported for this
        return value.model_dump(mode="json")
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, (datetime, date, time)):
        return value.isoformat()
    if isinstance(value, timedelta):
        return duration_text(value)
    if isinstance(value, (UUID, Decimal)):
        return str(value)
    if isinstance(value, (set, frozenset)):
        return list(value)
    kind = type(value)
    raise TypeError(f"a value of the type {kind.__module__}.{kind.__qualname__} is not JSON")


_ENCODER = json.JSONEncoder(
    ensure_ascii=False, allow_nan=False, separators=(",", ":"), default=_plain
)
# One encoder, because each call of json.dumps with options makes a new one.
_encode = _ENCODER.encode


def encode(value: Any) -> str:
    """The value as JSON. Raises a ValueError that says why it is none."""
    try:
        text = _encode(value)
        if not text.isascii():
            text.encode()
    except UnicodeEncodeError as error:
        raise ValueError("a text has half of a surrogate pair, which is not Unicode") from error
    except (TypeError, ValueError, RecursionError) as error:
        reason = "NaN and infinity are not JSON" if "not JSON compliant" in str(error) else error
        raise ValueError(str(reason)) from error
    return text


def encode_text(text: str) -> str:
    """A text as JSON, whatever it contains."""
    return _encode(text.encode("utf-8", "replace").decode())
