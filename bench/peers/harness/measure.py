"""One drain: a full queue, one worker process, and what it took.

The queue is locked until the worker, started and connected, waits in front of
it. The drain begins when the lock is released, and ends at the first look from
outside that finds every job durably done. So start-up does not count, all the
work does (a clock that starts at the first job done would give whoever
prefetches thousands of jobs their claim for nothing), and it is the same for
every system.

In between nobody looks: counting a table all the time costs as much as the
work. The worker says when it has run the last job; from then on the database is
looked at until the last is recorded too.
"""

import os
import select
import signal
import subprocess
import time
from dataclasses import dataclass

from . import cpu
from .server import Session

DATABASE = "drain"
# After the worker has come to the locked queue: for what it still starts beside.
SETTLE_S = 0.5
LOOK_LAST_S = 0.003
# While it works, only to notice that it does not work any more.
LOOK_BETWEEN_S = 2

WAITING_AT_GATE = (
    "SELECT count(*) FROM pg_locks WHERE NOT granted AND database = "
    "(SELECT oid FROM pg_database WHERE datname = current_database())"
)


class Stalled(Exception):
    """Why there is no rate."""


def drain(server, system, count, timeout_s):
    """The figures of one drain, or what it had done when it stalled."""
    # A fresh database each time: nobody inherits another's bloat.
    create_database(server, DATABASE)
    try:
        system.preload(count, server.url(DATABASE), timeout_s)
    except subprocess.TimeoutExpired:
        return {"stalled": "its jobs were not created in time"}
    with Session(server, DATABASE) as session:
        session.do("SET max_parallel_workers_per_gather = 0")
        # Tables as they are after some time of use: planned with statistics,
        # and no left-over of creation is written during the drain.
        session.do("VACUUM ANALYZE")
        session.do("CHECKPOINT")
        # Writers wait, readers may look at what is there.
        session.do(f"BEGIN; LOCK TABLE {system.gate} IN EXCLUSIVE MODE")
        worker = system.work(count, server.url(DATABASE))
        watch = Watch(server, session, system.done.format(count=count), worker)
        deadline = time.monotonic() + timeout_s
        try:
            begin = watch.open_gate(deadline)
            end = watch.until_done(count, deadline)
            return figures(begin, end, count, cpu.peak_memory_mb(worker.pid))
        except Stalled as stalled:
            return {"stalled": str(stalled)}
        finally:
            stop(worker)


def create_database(server, name):
    """An empty database; one of that name is removed."""
    with Session(server, "postgres") as admin:
        admin.do(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")
        admin.do(f"CREATE DATABASE {name} TEMPLATE template0")


@dataclass
class Look:
    at: float
    done: int
    worker_ns: int
    server_ns: int
    watchers_ns: int
    machine_ns: int


class Watch:
    def __init__(self, server, session, done, worker):
        self.server, self.session, self.done, self.worker = server, session, done, worker
        self.out = b""

    def open_gate(self, deadline):
        """Lets the worker in once it is there: the begin of the drain."""
        while self.session.ask(WAITING_AT_GATE) == "0":
            self.check(deadline, "before its first job")
            time.sleep(0.01)
        time.sleep(SETTLE_S)
        begin = self.look("clock_timestamp()", "0")
        self.session.do("COMMIT")
        return begin

    def until_done(self, count, deadline):
        """The first look that finds all jobs done."""
        while True:
            if self.has_handled_all(min(LOOK_BETWEEN_S, max(0, deadline - time.monotonic()))):
                time.sleep(LOOK_LAST_S)
            # The time of the snapshot, not that of the answer.
            look = self.look("statement_timestamp()", self.done)
            if look.done >= count:
                return look
            self.check(deadline, f"after {look.done:,} of {count:,} jobs")

    def look(self, clock, done):
        at, done = self.session.ask(f"SELECT extract(epoch FROM {clock}), ({done})").split("|")
        watchers = [self.session.backend, self.session.psql.pid, os.getpid()]
        return Look(
            float(at), int(done), cpu.process_ns(self.worker.pid),
            cpu.server_ns(self.server.process.pid, without=watchers),
            sum(map(cpu.process_ns, watchers)), cpu.machine_ns(),
        )

    def has_handled_all(self, wait_s):
        """Waits for the worker's word, but not for long."""
        if b"handled\n" not in self.out and self.worker.poll() is None:
            pipe = self.worker.stdout.fileno()
            if select.select([pipe], [], [], wait_s)[0]:
                self.out += os.read(pipe, 65536)
        return b"handled\n" in self.out

    def check(self, deadline, where):
        if self.worker.poll() is not None:
            raise Stalled(f"its process ended {where}, with exit code {self.worker.returncode}")
        if time.monotonic() > deadline:
            raise Stalled(f"no end in time, {where}")


def figures(begin, end, count, memory_mb):
    took_s = end.at - begin.at
    worker_ns, server_ns = end.worker_ns - begin.worker_ns, end.server_ns - begin.server_ns
    ours_ns = worker_ns + server_ns + end.watchers_ns - begin.watchers_ns
    return {
        "began_at": begin.at,
        "jobs_per_s": count / took_s,
        "worker_us_per_job": worker_ns / count / 1000,
        "server_us_per_job": server_ns / count / 1000,
        "worker_memory_mb": memory_mb,
        # Whether the machine was ours: cores that other programs used meanwhile.
        "others_cores": max(0.0, (end.machine_ns - begin.machine_ns - ours_ns) / (took_s * 1e9)),
    }


def stop(worker):
    for kind in (signal.SIGTERM, signal.SIGKILL):
        if worker.poll() is None:
            worker.send_signal(kind)
            try:
                worker.wait(5)
            except subprocess.TimeoutExpired:
                pass
    worker.stdout.close()
