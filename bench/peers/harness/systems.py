"""The systems that are compared: how each is built, filled, run and counted.

Each is a program of ours around its library, with two commands: `preload COUNT
SETTINGS` creates the jobs by the library's own bulk function, `work COUNT SETTINGS`
runs one worker process, which prints `handled` once it has run the last job.
"""

import json
import os
import shutil
import subprocess
import tomllib
from dataclasses import dataclass, field

HERE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
NODE = os.path.join(HERE, "node")
# From npm too: pg-boss needs a newer one than some distributions have.
NODE_PROGRAM = os.path.join(NODE, "node_modules", "node", "bin", "node")
TARGET = os.path.join(HERE, "target")
WORKSPACE = os.path.dirname(os.path.dirname(HERE))


@dataclass
class System:
    name: str
    command: list
    version: object
    # The table that holds what waits: locked until the drain begins.
    gate: str
    # How many jobs are durably done, as others see it; {count} is how many there are.
    done: str
    history: str
    settings: dict = field(default_factory=dict)

    def preload(self, count, url, timeout_s):
        subprocess.run(
            [*self.command, "preload", str(count), json.dumps(self.settings)],
            check=True, env=environment(url), timeout=timeout_s,
        )

    def work(self, count, url):
        return subprocess.Popen(
            [*self.command, "work", str(count), json.dumps(self.settings)],
            env=environment(url), stdout=subprocess.PIPE, text=True,
        )


def environment(url):
    return {**os.environ, "DATABASE_URL": url, "NODE_ENV": "production", "NO_COLOR": "1"}


def npm_version(package):
    def read():
        with open(os.path.join(NODE, "node_modules", package, "package.json")) as file:
            return json.load(file)["version"]
    return read


def crate_version(crate):
    def read():
        with open(os.path.join(HERE, "rust", "Cargo.lock"), "rb") as file:
            packages = tomllib.load(file)["package"]
        return next(package["version"] for package in packages if package["name"] == crate)
    return read


def task_engine_version():
    with open(os.path.join(WORKSPACE, "Cargo.toml"), "rb") as file:
        version = tomllib.load(file)["workspace"]["package"]["version"]
    commit = subprocess.run(
        ["git", "describe", "--always", "--dirty", "--exclude", "*"],
        cwd=WORKSPACE, capture_output=True, text=True,
    ).stdout.strip()
    return f"{version} ({commit})" if commit else version


GRAPHILE_JOBS = "graphile_worker._private_jobs"

SYSTEMS = [
    System(
        "task-engine",
        [os.path.join(TARGET, "release", "bench-task-engine")],
        task_engine_version,
        gate="task_engine.waiting_tasks",
        done="SELECT count(*) FROM task_engine.ended_executions WHERE ends_task = 'stopped'",
        history="yes: tasks and executions",
        settings={"workers": 4000},
    ),
    System(
        "graphile-rust",
        [os.path.join(TARGET, "release", "peer-graphile-worker")],
        crate_version("graphile_worker"),
        gate=GRAPHILE_JOBS,
        done=f"SELECT {{count}} - count(*) FROM {GRAPHILE_JOBS}",
        history="no: deleted",
        settings={
            "concurrency": 100, "connections": 20, "local_queue": 2000, "local_queues": 2,
            "complete_delay_ms": 0,
        },
    ),
    System(
        "graphile-node",
        [NODE_PROGRAM, os.path.join(NODE, "graphile-worker.mjs")],
        npm_version("graphile-worker"),
        gate=GRAPHILE_JOBS,
        done=f"SELECT {{count}} - count(*) FROM {GRAPHILE_JOBS}",
        history="no: deleted",
        settings={"concurrency": 24, "connections": 25, "local_queue": 5000, "complete_delay_ms": 0},
    ),
    System(
        "pg-boss",
        [NODE_PROGRAM, os.path.join(NODE, "pg-boss.mjs")],
        npm_version("pg-boss"),
        gate="pgboss.job",
        done="SELECT count(*) FROM pgboss.job WHERE name = 'no_op' AND state = 'completed'",
        history="yes: jobs",
        settings={"batch": 5000, "batches": 2},
    ),
]


def build(systems):
    names = {system.name for system in systems}
    if names & {"graphile-node", "pg-boss"}:
        install_node_peers()
    if "graphile-rust" in names:
        run(["cargo", "build", "--release", "--quiet", "--locked"], os.path.join(HERE, "rust"))
    if "task-engine" in names:
        package = os.path.join(HERE, "task-engine")
        # What is measured has the dependencies of what is shipped.
        shutil.copy(os.path.join(WORKSPACE, "Cargo.lock"), package)
        run(["cargo", "build", "--release", "--quiet"], package)


def install_node_peers():
    wanted = os.path.join(NODE, "package-lock.json")
    # npm's own note of what it has installed.
    installed = os.path.join(NODE, "node_modules", ".package-lock.json")
    if not os.path.exists(installed) or os.path.getmtime(installed) < os.path.getmtime(wanted):
        run(["npm", "ci", "--no-audit", "--no-fund", "--loglevel=error"], NODE)
    if not os.path.exists(NODE_PROGRAM):
        raise SystemExit("npm did not install the package `node`; does it refuse install scripts (ignore-scripts)?")


def run(command, directory):
    subprocess.run(command, cwd=directory, check=True, env={**os.environ, "CARGO_TARGET_DIR": TARGET})
