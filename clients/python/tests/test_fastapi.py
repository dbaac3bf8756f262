"""The example with FastAPI: uvicorn, PostgreSQL and an engine."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import psycopg
import pytest

from conftest import Engine
from test_engine import free_port, until

EXAMPLE = Path(__file__).parents[3] / "examples" / "fastapi"


def post(url: str, body: Any = None) -> tuple[int, Any]:
    data = json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=20) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.load(error)


def test_order_and_task_are_created_together(postgres_engine: Engine) -> None:
    engine = postgres_engine
    for name in ("shop.py", "worker.py"):
        shutil.copy(EXAMPLE / name, engine.folder)
    configuration = (EXAMPLE / "task-engine.toml").read_text()
    assert '"venv/bin/python"' in configuration
    (engine.folder / "task-engine.toml").write_text(
        configuration.replace('"venv/bin/python"', f'"{sys.executable}"')
    )
    engine.start("start")
    port = free_port()
    uvicorn = [sys.executable, "-m", "uvicorn", "shop:app", "--port", str(port)]
    log = engine.folder / "uvicorn.log"
    with open(log, "wb") as output:
        server = subprocess.Popen(
            uvicorn, cwd=engine.folder, env=engine.environment, stdout=output, stderr=output
        )
    try:
        until(lambda: "Uvicorn running" in log.read_text())
        status, placed = post(f"http://127.0.0.1:{port}/orders", {"item": "book", "cents": 1900})
        assert status == 201, placed
        approval = f"http://127.0.0.1:{port}/orders/{placed['order_id']}/approval?by=ada"
        status, sent = post(approval)
        assert (status, sent in ("kept", "delivered")) == (200, True)
        assert engine.wait(placed["task_id"])["result"] == "shipped the book"
        assert "approved by ada" in engine.run("logs", str(placed["task_id"]))
        # An order that is refused has no task.
        status, _ = post(f"http://127.0.0.1:{port}/orders", {"item": "air", "cents": 0})
        assert status == 422
    finally:
        server.terminate()
        server.wait()
    with psycopg.connect(engine.environment["TASK_ENGINE_DATABASE_URL"]) as db:
        tasks = "SELECT count(*) FROM task_engine.tasks WHERE task_parameters ->> 'item' = 'air'"
        assert db.execute(tasks).fetchone() == (0,)
        orders = "SELECT count(*) FROM paid_orders WHERE item = 'book'"
        assert db.execute(orders).fetchone() != (0,)


if not EXAMPLE.exists():  # the source distribution has no examples
    pytest.skip("the example is not here", allow_module_level=True)
