"""A worker that connects to an engine, and connects again when the connection is lost."""

from __future__ import annotations

import json
import signal
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Optional

from .errors import WorkerRefused
from .executor import AsyncExecutor, ThreadExecutor
from .session import Session
from .sockets import Address, SocketConnection
from .tasks import Task

_LONGEST_PAUSE = 30
# How long the engine may take for its answer to the announcement, and for the last answers.
_TIMEOUT = 30


class RemoteWorker:
    """Connects and serves until it is stopped by SIGTERM or SIGINT."""

    def __init__(
        self,
        address: str,
        ca: Optional[str],
        announcement: dict[str, Any],
        tasks: Mapping[str, Task[Any, Any]],
        threads: ThreadExecutor,
        coroutines: AsyncExecutor,
    ) -> None:
        self._address = Address.parse(address, ca)
        self._announcement = announcement
        self._tasks = tasks
        self._executors = (threads, coroutines)
        self._stopping = threading.Event()
        self._session: Optional[Session] = None

    def run(self) -> None:
        pause = 1
        with self._signals():
            while not self._stopping.is_set():
                try:
                    connected = self._serve()
                except OSError as error:
                    connected, reason = False, str(error)
                else:
                    reason = "the connection was lost"
                if self._stopping.is_set():
                    return
                if connected:
                    pause = 1
                said = f"task-engine: {self._address}: {reason}; trying again in {pause} s"
                print(said, file=sys.stderr, flush=True)
                self._stopping.wait(pause)
                pause = min(2 * pause, _LONGEST_PAUSE)

    def _serve(self) -> bool:
        """Returns whether the engine has accepted this worker."""
        connection = SocketConnection.open(self._address, _TIMEOUT)
        with connection:
            session = Session(connection, self._tasks, *self._executors)
            session.start(self._announcement)
            try:
                rest = _accepted(connection)
            except BaseException:
                connection.close()
                session.abandon()
                raise
            self._session = session
            if self._stopping.is_set():
                session.send('{"stopping":true}')
            try:
                session.run(rest)
            finally:
                self._session = None
                connection.close()  # the writer may wait for room in it
                # If it was stopping, its tasks have ended.
                session.abandon()
        return True

    def stop(self) -> None:
        """Takes no more tasks. `run` returns when those that are running have ended."""
        self._stopping.set()
        if self._session is not None:
            self._session.send('{"stopping":true}')

    @contextmanager
    def _signals(self) -> Iterator[None]:
        if threading.current_thread() is not threading.main_thread():
            yield  # only the main thread gets signals
            return

        def on_signal(number: int, _: object) -> None:
            if self._stopping.is_set():
                # The second one: at once.
                signal.signal(number, signal.SIG_DFL)
                signal.raise_signal(number)
            # Not here: a handler interrupts anything, also code that holds a lock.
            threading.Thread(target=self.stop, daemon=True).start()

        numbers = (signal.SIGTERM, signal.SIGINT)
        before = {number: signal.signal(number, on_signal) for number in numbers}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


def _accepted(connection: SocketConnection) -> bytes:
    """Reads the answer to the announcement. Returns what came after it."""
    buffer = b""
    while b"\n" not in buffer:
        chunk = connection.read()
        if not chunk:
            raise OSError("the engine closed the connection before its answer")
        buffer += chunk
    first, _, rest = buffer.partition(b"\n")
    try:
        answer = json.loads(first)
    except ValueError:
        raise OSError(f"this is no engine: it answered {first[:100]!r}") from None
    if isinstance(answer, dict) and "refused" in answer:
        message = f"the engine refused this worker: {answer['refused']}"
        # Some refusals pass: an engine without its database, for example.
        raise OSError(message) if answer.get("again") else WorkerRefused(message)
    if not isinstance(answer, dict) or "connected" not in answer:
        raise OSError(f"this is no engine: it answered {first[:100]!r}")
    connection.accepted()
    return rest
