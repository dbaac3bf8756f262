"""The standard streams as the connection to the engine, out of reach of user code."""

from __future__ import annotations

import os
import sys


class StandardStreams:
    """Takes the standard input and output over. What else is printed goes to the standard error,
    also from child processes; what else is read is empty."""

    def __init__(self) -> None:
        self.input = os.dup(0)
        self.output = os.dup(1)
        with open(os.devnull, "rb") as nothing:
            os.dup2(nothing.fileno(), 0)
        # Before the flush: texts that were printed before are no lines of the protocol.
        os.dup2(2, 1)
        old = sys.stdout
        sys.stdout = sys.stderr
        try:
            old.flush()
            # A logger may have kept the old object.
            old.reconfigure(line_buffering=True)  # type: ignore[union-attr]
        except (AttributeError, ValueError, OSError):
            pass

    def read(self) -> bytes:
        return os.read(self.input, 1 << 20)

    def write(self, data: bytes) -> None:
        left = memoryview(data)
        while left:
            left = left[os.write(self.output, left) :]
