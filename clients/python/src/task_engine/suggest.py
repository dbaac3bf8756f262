"""Similar names for messages about unknown ones."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def did_you_mean(name: str, known: Iterable[str]) -> str:
    similar = difflib.get_close_matches(name, list(known), 1)
    return f"; did you mean {similar[0]!r}?" if similar else ""
