"""One connection to an engine: its tasks, and the lines in both directions."""

from __future__ import annotations

import functools
import json
import queue
import sys
import threading
from collections.abc import Mapping
from typing import Any, Callable, Protocol, Union

from .context import AsyncContext, BaseContext, Context
from .executor import AsyncExecutor, ThreadExecutor
from .json_values import encode, encode_text
from .tasks import Task

__all__ = ["Connection", "Session"]

_WRITE_BYTES = 256 * 1024
_LOG_LINE_BYTES = 48 * 1024


class Connection(Protocol):
    """What lines are exchanged over."""

    def read(self) -> bytes:
        """Some bytes, or none at the end."""

    def write(self, data: bytes) -> None: ...


class Session:
    """Runs the tasks that come over one connection."""

    def __init__(
        self,
        connection: Connection,
        tasks: Mapping[str, Task[Any, Any]],
        threads: ThreadExecutor,
        coroutines: AsyncExecutor,
    ) -> None:
        self._connection = connection
        self._tasks = tasks
        self._threads = threads
        self._coroutines = coroutines
        self._running: dict[str, BaseContext] = {}
        self._changed = threading.Condition()
        self._outgoing: queue.SimpleQueue[Union[str, BaseContext, None]] = queue.SimpleQueue()
        self._writer = threading.Thread(target=self._write, name="task-engine writer", daemon=True)
        self.is_closing = False
        """No more answers come from the engine."""
        self.lost = False

    # Lines to the engine. A thread writes them, so that no task waits for a slow engine.

    def start(self, announcement: dict[str, Any]) -> None:
        self._writer.start()
        self._outgoing.put(encode(announcement))

    def send(self, line: str) -> None:
        self._outgoing.put(line)

    def send_log(self, context: BaseContext) -> None:
        """Sends the log lines that the context has when its turn comes."""
        self._outgoing.put(context)

    def _write(self) -> None:
        get, parts, size = self._outgoing.get, [], 0
        is_open = True
        while is_open:
            item = get()
            while True:
                if item is None:
                    is_open = False
                    break
                if isinstance(item, str):
                    parts.append(item)
                    size += len(item)
                else:
                    size += _add_log(item, parts)
                if size > _WRITE_BYTES:
                    break
                try:
                    item = self._outgoing.get_nowait()
                except queue.Empty:
                    break
            if parts and not self.lost:
                parts.append("")
                try:
                    self._connection.write("\n".join(parts).encode("utf-8", "replace"))
                except OSError:
                    self.lost = True
            parts, size = [], 0

    # Lines of the engine.

    def run(self, buffered: bytes = b"") -> None:
        """Runs tasks until the engine closes the connection."""
        buffer = bytearray(buffered)
        chunk = buffered
        while True:
            if b"\n" in chunk:
                complete, _, rest = buffer.rpartition(b"\n")
                buffer = bytearray(rest)
                self._receive(complete.decode("utf-8", "replace"))
            try:
                chunk = self._connection.read()
            except OSError:
                chunk = b""
            if not chunk:
                return
            buffer += chunk

    def _receive(self, lines: str) -> None:
        in_loop: list[Callable[[], Any]] = []
        for text in lines.split("\n"):
            try:
                line = json.loads(text)
                if not isinstance(line, dict):
                    continue
            except ValueError:
                print(f"task-engine: ignored a line that is not JSON: {text:.200}", file=sys.stderr)
                continue
            if "parameters" in line:
                if "id" in line and "class" in line:
                    self._begin(line, in_loop)
            elif "cancel" in line:
                context = self._running.get(line["cancel"])
                if isinstance(context, AsyncContext):
                    in_loop.append(context._cancel)
                elif context is not None:
                    context._cancel()
            elif line.get("id") in self._running:
                context = self._running[line["id"]]
                if isinstance(context, AsyncContext):
                    in_loop.append(functools.partial(context._receive, line))
                else:
                    context._receive(line)
        if in_loop:
            self._coroutines.call(in_loop)

    def _begin(self, line: dict[str, Any], in_loop: list[Callable[[], Any]]) -> None:
        task = self._tasks.get(line["class"])
        if task is None:
            known = ", ".join(sorted(self._tasks))
            said = f"this worker has no task {line['class']!r}; it has {known}"
            error = {"exception": "UnknownClass", "message": said}
            self.send(encode({"id": line["id"], "error": error, "retry": False}))
        elif task.is_async:
            asynchronous = AsyncContext(self, line)
            self._running[line["id"]] = asynchronous
            in_loop.append(lambda: self._coroutines.start(task, asynchronous))
        else:
            context = Context(self, line)
            self._running[line["id"]] = context
            self._threads.start(task, context)

    def ended(self, context: BaseContext) -> None:
        """The code of a task has ended."""
        self._running.pop(context._line["id"], None)
        if self.is_closing and not self._running:
            with self._changed:
                self._changed.notify_all()

    # The end.

    def finish(self) -> None:
        """Waits until all tasks have ended, and everything is written. Durable calls that wait
        for an answer get none any more: they end their attempts."""
        self.is_closing = True
        for context in list(self._running.values()):
            if context._waiting:
                self._in_its_thread(
                    context, functools.partial(context._end, "the engine has stopped")
                )
        with self._changed:
            while any(not context._over for context in list(self._running.values())):
                self._changed.wait(0.2)
        self._close_writer()

    def abandon(self) -> None:
        """The connection is lost: the tasks have ended for the engine, so they are cancelled."""
        self.is_closing = self.lost = True
        for context in list(self._running.values()):
            self._in_its_thread(context, context._cancel)
        self._close_writer()

    def tasks_left(self) -> int:
        return len(self._running)

    def _in_its_thread(self, context: BaseContext, call: Callable[[], Any]) -> None:
        if isinstance(context, AsyncContext):
            self._coroutines.call([call])
        else:
            call()

    def _close_writer(self) -> None:
        self._outgoing.put(None)
        self._writer.join()


def _add_log(context: BaseContext, parts: list[str]) -> int:
    """Adds all pending log lines of a task as few lines, none of them longer than a line may be."""
    size, added = 0, 0
    texts: list[str] = []
    for line in "\n".join(context._take_log()).split("\n"):
        # The engine keeps 8 KiB of a line.
        text = encode_text(line[: _LOG_LINE_BYTES // 6])
        if size + len(text) > _LOG_LINE_BYTES // 4:
            parts.append(f'{context._head}"log":[{",".join(texts)}]}}')
            size, texts = 0, []
        texts.append(text)
        size += len(text)
        added += len(text)
    parts.append(f'{context._head}"log":[{",".join(texts)}]}}')
    return added
