"""Workers under a real engine: durable tasks, killed processes, remote workers."""

from __future__ import annotations

import json
import os
import shlex
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Callable

import pytest

from conftest import TIMEOUT, WORKERS, Engine


def until(condition: Callable[[], object]) -> None:
    """Polls for what no command can wait for."""
    deadline = time.monotonic() + TIMEOUT
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.02)


def effects(engine: Engine, task_id: int) -> list[str]:
    path = engine.folder / "effects.txt"
    lines = path.read_text().split() if path.exists() else []
    return [line.split(":")[1] for line in lines if line.startswith(f"{task_id}:")]


def worker_of(engine: Engine, task_id: int) -> int:
    """The process that the task has logged."""
    until(lambda: "pid " in engine.run("logs", str(task_id)))
    return int(engine.run("logs", str(task_id)).split("pid ")[-1].split()[0])


@pytest.mark.parametrize("worker", ["check_worker.py", "check_async_worker.py"])
def test_passes_the_check_of_workers(engine: Engine, worker: str) -> None:
    command = shlex.join([sys.executable, str(WORKERS / worker)])
    report = json.loads(engine.run("check", "--json", "--worker", command).strip())
    assert [case for case in report["cases"] if case.get("problem")] == []
    assert report["left_out"] == []
    assert len(report["cases"]) > 20


def test_durable_task_survives_a_killed_worker(engine: Engine) -> None:
    engine.configure()
    (engine.folder / "hang").touch()
    engine.start("start")
    task_id = int(engine.run("create", "order", '{"item": "book"}'))
    pid = worker_of(engine, task_id)
    (engine.folder / "hang").unlink()
    os.kill(pid, signal.SIGKILL)
    assert engine.run("signal", str(task_id), "approved", '{"by": "ada"}')
    ended = engine.wait(task_id)
    assert ended["result"] == "reserve ada parcel of book parcel of second"
    done = effects(engine, task_id)
    assert (done.count("reserve"), done.count("charge")) == (1, 1)
    assert done.count("between") >= 2, "an attempt runs the code from its beginning"


def test_durable_task_survives_a_killed_engine(postgres_engine: Engine) -> None:
    engine = postgres_engine
    engine.configure()
    (engine.folder / "hang").touch()
    first = engine.start("start", "--instance", "first")
    task_id = int(engine.run("create", "order", '{"item": "pen"}'))
    worker_of(engine, task_id)
    first.kill()
    first.wait()
    (engine.folder / "hang").unlink()
    engine.start("start", "--instance", "second")
    engine.run("signal", str(task_id), "approved", '{"by": "bob"}')
    engine.run("recover", "first")
    assert engine.wait(task_id)["result"] == "reserve bob parcel of pen parcel of second"
    assert effects(engine, task_id).count("charge") == 1


def test_options_of_the_announcement_count(engine: Engine) -> None:
    (engine.folder / "worker.py").write_text(
        "from task_engine import task, serve\n"
        '@task("slow", timeout="200ms", retries=0, queue="q")\n'
        "def slow(ctx):\n"
        "    ctx.wait_cancelled()\n"
        "serve()\n"
    )
    (engine.folder / "task-engine.toml").write_text(
        f'[worker.python]\ncommand = ["{sys.executable}", "worker.py"]\n'
    )
    engine.start("start", "--queue", "q", "--queue", "default")
    task_id = int(engine.run("create", "slow", "--queue", "q"))
    ended = engine.wait(task_id)
    assert (ended["status"], ended["error"]["exception"]) == ("failed", "Timeout")


def test_flow_passes_results_on(engine: Engine) -> None:
    engine.configure()
    engine.start("start")
    (engine.folder / "flow.json").write_text(
        json.dumps(
            {
                "tasks": {
                    "extract": {"class": "ship", "parameters": {"item": "x"}},
                    "load": {"class": "check_result", "after": "extract"},
                }
            }
        )
    )
    created = engine.run("flow", "run", "flow.json", "--correlation", "nightly 1", "--json")
    load = json.loads(created)["tasks"]["load"]
    assert engine.wait(load)["result"] == "PARCEL OF X"


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Remote:
    """A worker that connects to an engine."""

    def __init__(self, address: str, log: Path, **variables: str) -> None:
        environment = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")}
        environment.update(variables, TASK_ENGINE_CONNECT=address)
        self.log = log
        with open(log, "wb") as errors:
            command = [sys.executable, str(WORKERS / "odd_worker.py")]
            self.process = subprocess.Popen(
                command, env=environment, stderr=errors, stdout=errors, cwd=log.parent
            )


def certificate(folder: Path) -> tuple[Path, Path]:
    cert, key = folder / "cert.pem", folder / "key.pem"
    subject = ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"]
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"]
    paths = ["-keyout", str(key), "-out", str(cert)]
    subprocess.run([*command, *paths, *subject], check=True, capture_output=True)
    return cert, key


@pytest.mark.parametrize("kind", ["tcp", "tls", "unix"])
def test_remote_worker(engine: Engine, kind: str) -> None:
    folder = engine.folder
    port = free_port()
    variables = {"TASK_ENGINE_LISTEN_TOKEN": "the right token"}
    listen = ["--listen", f"127.0.0.1:{port}"]
    address = f"{kind}://localhost:{port}"
    if kind == "unix":
        listen, address = ["--listen", f"unix:{folder}/socket"], f"unix:{folder}/socket"
    elif kind == "tls":
        cert, key = certificate(folder)
        listen += ["--listen-certificate", str(cert), "--listen-key", str(key)]
        variables["TASK_ENGINE_CONNECT_CA"] = str(cert)
    engine.environment["TASK_ENGINE_LISTEN_TOKEN"] = "the right token"
    # The worker is there before its engine.
    worker = Remote(address, folder / "worker.log", **variables)
    until(lambda: "trying again in 1 s" in worker.log.read_text())
    first = engine.start("start", *listen)
    big = "ü" * 400_000
    echoed = int(
        engine.run(
            "create", "whole", "-", stdin=json.dumps({"item": big, "cents": 1}, ensure_ascii=False)
        )
    )
    assert engine.wait(echoed)["result"]["item"] == big
    # A lost connection cancels the tasks; the worker comes back to the next engine.
    task_id = int(engine.run("create", "order", '{"item": "book"}'))
    until(lambda: "between" in effects(engine, task_id))
    hangs = int(engine.run("create", "notices_cancel"))
    until(lambda: (folder / "hangs").exists())
    assert not (folder / "cancelled").exists()
    first.kill()
    first.wait()
    until(lambda: (folder / "cancelled").exists())
    until(lambda: worker.log.read_text().count("trying again") > 1)
    engine.start("start", *listen)
    engine.run("signal", str(task_id), "approved", '{"by": "ada"}')
    assert engine.wait(task_id)["result"] == "reserve ada parcel of book parcel of second"
    assert engine.wait(hangs)["result"] == "done"
    # SIGTERM: it finishes its tasks, and exits.
    running = int(engine.run("create", "waits_for_file"))
    until(lambda: (folder / "begun").exists())
    worker.process.send_signal(signal.SIGTERM)
    (folder / "go").touch()
    assert engine.wait(running)["result"] == "done"
    assert worker.process.wait(TIMEOUT) == 0


def test_wrong_token_ends_the_worker(engine: Engine) -> None:
    port = free_port()
    engine.environment["TASK_ENGINE_LISTEN_TOKEN"] = "the right token"
    engine.configure()
    engine.start("start", "--listen", f"127.0.0.1:{port}")
    worker = Remote(
        f"tcp://127.0.0.1:{port}",
        engine.folder / "worker.log",
        TASK_ENGINE_LISTEN_TOKEN="wrong",
    )
    assert worker.process.wait(TIMEOUT) == 1
    last = worker.log.read_text().strip().split("\n")[-1]
    assert last.startswith("task_engine.errors.WorkerRefused: the engine refused this worker: ")


def test_temporary_refusal_is_tried_again(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(TIMEOUT)
        port = server.getsockname()[1]
        worker = Remote(f"tcp://127.0.0.1:{port}", tmp_path / "worker.log")
        connection, _ = server.accept()
        with connection:
            connection.makefile("rb").readline()
            connection.sendall(b'{"refused": "no database", "again": true}\n')
        again, _ = server.accept()
        again.close()
        worker.process.kill()
        worker.process.wait()
        assert "refused this worker: no database" in worker.log.read_text()
