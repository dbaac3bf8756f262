"""Every snippet of README.md is run, in the order of the page and in one folder."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Optional

import psycopg
import pytest

from conftest import Engine
from test_engine import free_port, until

PAGE = (Path(__file__).parents[1] / "README.md").read_text()
SNIPPETS = re.findall(r"^```(\w+)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
DJANGO = """
import django
from django.conf import settings
settings.configure(DATABASES={"default": {"ENGINE": "django.db.backends.postgresql", **%r}})
django.setup()
"""


class Page:
    def __init__(self, engine: Engine, postgres: str) -> None:
        self.engine = engine
        self.postgres = postgres
        self.web = f"127.0.0.1:{free_port()}"
        self.listen = f"127.0.0.1:{free_port()}"
        self.started: Optional[subprocess.Popen[bytes]] = None
        self.process: Optional[subprocess.Popen[bytes]] = None
        engine.environment["PYTHONPATH"] = str(engine.folder)
        engine.environment["PATH"] = f"{Path(sys.executable).parent}:{engine.environment['PATH']}"

    def python(self, code: str) -> None:
        name = re.match(r"# (\w+\.py)\n", code)
        if name:
            (self.engine.folder / name[1]).write_text(code)
            if "serve()" in code:
                return  # an engine executes it
            code = f"import {name[1][:-3]}"
        if "from django" in code:
            parts = psycopg.conninfo.conninfo_to_dict(self.postgres)
            names = {"NAME": "dbname", "USER": "user", "HOST": "host", "PORT": "port"}
            code = DJANGO % {to: str(parts.get(by, "")) for to, by in names.items()} + code
        code = code.replace("http://localhost:8642", f"http://{self.web}")
        server = self.postgres.replace("postgres://", "://", 1)
        code = re.sub(r"(postgresql(\+psycopg)?)://localhost/tasks", rf"\1{server}", code)
        self.run(sys.executable, "-c", code)

    def run(self, *command: str, **variables: str) -> None:
        environment = {**self.engine.environment, **variables}
        subprocess.run(command, cwd=self.engine.folder, env=environment, timeout=120, check=True)

    def install(self, package: str) -> None:
        """With the build tools of the tests, so that nothing is downloaded."""
        clone = self.engine.folder.parent / "task-engine"
        if not clone.exists():
            clone.symlink_to(Path(__file__).parents[3])
        tools = {"PIP_NO_BUILD_ISOLATION": "0", "PIP_NO_INDEX": "1", "PIP_QUIET": "1"}
        packages = str(Path(psycopg.__file__).parents[1])
        self.run("venv/bin/pip", "install", package, PYTHONPATH=packages, **tools)

    def shell(self, lines: str) -> None:
        for line in lines.strip().split("\n"):
            if line == "python3 -m venv venv":
                self.run(sys.executable, "-m", "venv", "venv")
            elif line.startswith("venv/bin/pip install "):
                self.install(line.split()[2])
            elif line.startswith("export "):
                name, value = line[len("export ") :].split("=", 1)
                self.engine.environment[name] = value.replace("127.0.0.1:8643", self.listen)
            elif line.startswith("venv/bin/python "):
                self.process = subprocess.Popen(
                    line.split(), cwd=self.engine.folder, env=self.engine.environment
                )
            elif line.startswith("task-engine start"):
                if self.started is not None:
                    self.started.terminate()
                    self.started.wait()
                self.started = self.engine.start(
                    *line.replace("127.0.0.1:8643", self.listen).split()[1:]
                )
            else:
                assert line.startswith("task-engine create greet '"), line
                self.engine.run("create", "greet", line.split("'")[1])


@pytest.fixture
def page(engine: Engine, postgres: str) -> Iterator[Page]:
    with psycopg.connect(postgres) as db:
        db.execute("DROP TABLE IF EXISTS orders")
        db.execute("CREATE TABLE orders (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY)")
    page = Page(engine, postgres)
    yield page
    if page.process is not None:
        page.process.kill()
        page.process.wait()


def test_snippets_of_the_page(page: Page) -> None:
    engine = page.engine
    engine.start("web", page.web, "--web-role", "operator")
    until(lambda: "http://" in (engine.folder / "engine.log").read_text())
    for language, code in SNIPPETS:
        if language == "python":
            page.python(code)
        elif language == "toml":
            (engine.folder / "task-engine.toml").write_text(code)
        else:
            if "start" in code and "--listen" in code:
                # It has executed the first example.
                assert engine.wait(1)["result"] == {"length": 3}
                (engine.folder / "task-engine.toml").unlink()
            page.shell(code)
    task_id = int(engine.run("create", "greet", '{"name": "remote"}'))
    assert engine.wait(task_id)["result"] == {"length": 6}
    assert page.process is not None
    page.process.terminate()
    assert page.process.wait(20) == 0
    assert len(SNIPPETS) > 15
