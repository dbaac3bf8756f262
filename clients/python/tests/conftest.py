from __future__ import annotations

import json
import os
import queue
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Callable, Optional

import pytest

WORKERS = Path(__file__).parent / "workers"
TIMEOUT = 20


class WorkerProcess:
    """Plays the engine for a worker that it has started."""

    def __init__(self, *command: str, **options: Any) -> None:
        # The engine passes few variables on.
        environment = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")}
        self.process = subprocess.Popen(
            [sys.executable, *command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environment,
            **options,
        )
        assert self.process.stdout is not None
        self.announcement = json.loads(self.process.stdout.readline())
        self._lines: queue.Queue[Optional[dict[str, Any]]] = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._lines.put(json.loads(line))
        self._lines.put(None)

    def send(self, *lines: Any) -> None:
        """Lines as JSON; bytes as they are."""
        assert self.process.stdin is not None
        for line in lines:
            data = line if isinstance(line, bytes) else json.dumps(line).encode() + b"\n"
            self.process.stdin.write(data)
        self.process.stdin.flush()

    def begin(self, task_class: str, parameters: Any = None, number: int = 1, **more: Any) -> str:
        attempt = f"{number}.1"
        self.send(
            {
                "id": attempt,
                "task_id": number,
                "attempt": 1,
                "retry_number": 0,
                "class": task_class,
                "correlation_id": str(number),
                "parameters": parameters or {},
                **more,
            }
        )
        return attempt

    def line(self) -> dict[str, Any]:
        line = self._lines.get(timeout=TIMEOUT)
        assert line is not None, "the worker has ended"
        return line

    def answer(self, task_class: str, parameters: Any = None, **more: Any) -> dict[str, Any]:
        """The answer to one task, without its id. Skips log lines."""
        attempt = self.begin(task_class, parameters, **more)
        while "log" in (line := self.line()):
            pass
        assert line.pop("id") == attempt
        return line

    def close(self) -> list[dict[str, Any]]:
        """Closes the input. Returns the lines that still came; the worker has ended with 0."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        rest = []
        while (line := self._lines.get(timeout=TIMEOUT)) is not None:
            rest.append(line)
        assert self.process.wait(TIMEOUT) == 0
        return rest

    def errors(self) -> str:
        assert self.process.stderr is not None
        return str(self.process.stderr.read(), "utf-8")


@pytest.fixture
def start_worker() -> Iterator[Callable[..., WorkerProcess]]:
    started: list[WorkerProcess] = []

    def start(name: str, *arguments: str, **options: Any) -> WorkerProcess:
        started.append(WorkerProcess(str(WORKERS / name), *arguments, **options))
        return started[-1]

    yield start
    for worker in started:
        worker.process.kill()
        worker.process.wait()
        for stream in (worker.process.stdin, worker.process.stdout, worker.process.stderr):
            if stream is not None:
                try:
                    stream.close()
                except OSError:
                    pass


class Engine:
    """The program task-engine in a folder of its own, on SQLite or another database."""

    def __init__(self, folder: Path, database: str) -> None:
        self.folder = folder
        self.environment = {**os.environ, "TASK_ENGINE_DATABASE_URL": database}
        self.environment.pop("TASK_ENGINE_CONNECT", None)
        self.running: list[subprocess.Popen[bytes]] = []

    def run(self, *arguments: str, stdin: str = "") -> str:
        command = [os.environ["TASK_ENGINE_TEST_BINARY"], *arguments]
        done = subprocess.run(
            command,
            cwd=self.folder,
            env=self.environment,
            capture_output=True,
            input=stdin,
            text=True,
            timeout=60,
            check=False,
        )
        output: str = done.stdout
        assert done.returncode in (0, 10), f"{arguments}: {output}{done.stderr}"
        return output

    def wait(self, task_id: int) -> dict[str, Any]:
        result: dict[str, Any] = json.loads(self.run("wait", str(task_id), "--timeout", "40s"))
        return result

    def start(self, *arguments: str) -> subprocess.Popen[bytes]:
        with open(self.folder / "engine.log", "ab") as log:
            command = [os.environ["TASK_ENGINE_TEST_BINARY"], *arguments]
            process = subprocess.Popen(
                command, cwd=self.folder, env=self.environment, stdout=log, stderr=log
            )
        self.running.append(process)
        return process

    def stop(self) -> None:
        for process in self.running:
            process.terminate()
        for process in self.running:
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def configure(self, worker: str = "odd_worker.py", more: str = "") -> None:
        command = json.dumps([sys.executable, str(WORKERS / worker)])
        (self.folder / "task-engine.toml").write_text(
            f'[worker.python]\ncommand = {command}\nfolder = "."\n{more}'
        )


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    """An engine on SQLite that is not started yet."""
    made = Engine(tmp_path, f"sqlite:{tmp_path}/tasks.db")
    made.run("migrate")
    yield made
    made.stop()


@pytest.fixture(scope="session")
def postgres() -> str:
    """The URL of a migrated database."""
    return os.environ["TASK_ENGINE_TEST_DATABASE_URL"]


@pytest.fixture
def postgres_engine(tmp_path: Path, postgres: str) -> Iterator[Engine]:
    made = Engine(tmp_path, postgres)
    yield made
    made.stop()
