"""Creation over HTTP, by a real server on SQLite."""

from __future__ import annotations

import http.server
import threading
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from conftest import Engine
from task_engine import Flow, HttpClient, HttpError, InvalidArgument, NewTask
from test_engine import free_port, until

TRACEPARENT = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


class Server:
    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.url = f"http://127.0.0.1:{free_port()}/"
        engine.start("web", self.url.removeprefix("http://").rstrip("/"), "--web-role", "none")
        token = engine.run("tokens", "create", "shop", "--role", "operator").split()[-1]
        self.client = HttpClient(self.url, token=token)
        until(self.is_up)

    def is_up(self) -> bool:
        try:
            self.client.create("started")
        except HttpError as error:
            if error.status == 0:
                return False
            raise
        return True

    def task(self, task_id: int) -> str:
        return self.engine.run("show", str(task_id), "--json")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder: Path = tmp_path_factory.mktemp("http")
    engine = Engine(folder, f"sqlite:{folder}/tasks.db")
    engine.run("migrate")
    yield Server(engine)
    engine.stop()


def test_creates_with_every_option(server: Server) -> None:
    server.engine.run("limits", "set", "api", "--max", "2")
    created = server.client.create(
        "resize",
        {"text": "ü\u2028", "at": datetime(2030, 1, 1, tzinfo=timezone.utc)},
        after=timedelta(milliseconds=1_500_500),
        queue="pictures",
        priority=-5,
        limits={"api": 7},
        correlation_id="order 7",
        traceparent=TRACEPARENT,
        retry={"maximum": 3, "first_delay": "10s", "cap": "1h", "restart_after_progress": False},
    )
    assert created.outcome == "created"
    stored = server.task(created).replace(" ", "")
    for part in ('"pictures"', '"priority":-5', '{"api":"7"}', "order7", TRACEPARENT, "10000"):
        assert part in stored


def test_unique_tasks_tell_their_outcome(server: Server) -> None:
    client = server.client
    first = client.create("index", key="k")
    assert client.create("index", key="k").outcome == "kept"
    again = client.create("index", key="k", scope="waiting", on_conflict="replace")
    assert (again, again.outcome) == (first, "replaced")
    assert client.create("index", key="k", scope=timedelta(days=1)).outcome == "kept"


def test_request_is_repeated_once(server: Server) -> None:
    client = server.client
    first = client.create("charge", {"order": 17}, idempotency_key="order 17")
    again = client.create("charge", {"order": 17}, idempotency_key="order 17")
    assert (again, again.is_new) == (first, False)
    with pytest.raises(HttpError) as refused:
        client.create("charge", {"order": 18}, idempotency_key="order 17")
    assert (refused.value.status, refused.value.code) == (422, "422")


def test_creates_many_and_flows(server: Server) -> None:
    client = server.client
    created = client.create_many([NewTask("a", {"n": n}) for n in range(3)])
    assert created == sorted(set(created))
    assert client.create_many([]) == []
    flow = Flow("nightly").add("extract", "extract", limits=["api"])
    flow.add("load", "load", after=["extract", created[0]], delay="90s", retry={"maximum": 1})
    done = client.create_flow(flow, idempotency_key="nightly 1")
    assert client.create_flow(flow, idempotency_key="nightly 1") == done
    assert done.correlation_id is not None
    after = client.create("c", after_task=created[1], after_task_failure=done["load"])
    assert '"is_blocked":true' in server.task(after).replace(" ", "").replace("\n", "")
    with pytest.raises(InvalidArgument, match="create a Flow"):
        client.create_many([NewTask("a", after_task=1)])


def test_sends_signals(server: Server) -> None:
    client = server.client
    task_id = client.create("order", key="order 7")
    assert client.signal(task_id, "approved by/ü", {"by": "ada"}) == "kept"
    assert client.signal(task_id, "approved by/ü") == "duplicate"
    assert client.signal(10**9, "approved") == "not_found"
    assert client.signal_by_key("order", "order 7", "paid", None) == "kept"
    server.engine.run("cancel", str(task_id), "--yes")
    assert client.signal(task_id, "late") == "task_ended"


def test_problems_are_errors(server: Server) -> None:
    with pytest.raises(HttpError) as refused:
        server.client.create("resize", limits={"no such": "limit"})
    error = refused.value
    assert (error.status, error.problem["title"]) == (400, "Bad Request")
    assert "no such" in str(error)
    with pytest.raises(HttpError) as refused:
        HttpClient(server.url, token="wrong").create("resize")
    assert refused.value.status == 401
    with pytest.raises(HttpError, match="no answer from http://127.0.0.1:") as refused:
        HttpClient(f"http://127.0.0.1:{free_port()}").create("resize")
    assert (refused.value.status, refused.value.code) == (0, None)
    with pytest.raises(InvalidArgument, match="is not a URL"):
        HttpClient("localhost:8642")


def test_answer_of_another_server_is_an_error() -> None:
    class Other(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.send_response(502)
            self.end_headers()
            self.wfile.write(b"<html>Bad gateway</html>")

        def log_message(self, *_: Any) -> None:
            pass

    with http.server.HTTPServer(("127.0.0.1", 0), Other) as other:
        threading.Thread(target=other.handle_request, daemon=True).start()
        with pytest.raises(HttpError, match="502: <html>Bad gateway"):
            HttpClient(f"http://127.0.0.1:{other.server_port}").create("resize")
