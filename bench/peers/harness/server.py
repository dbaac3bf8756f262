"""A PostgreSQL server of our own, for one run, and a connection to look at it."""

import glob
import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time

# Durable, and the same for every system. Everything else is PostgreSQL's default.
SETTINGS = {
    "fsync": "on",
    "synchronous_commit": "on",
    "shared_buffers": "1GB",
    "max_wal_size": "8GB",
}


class Server:
    def __init__(self, bin_dir=None, parent_dir=None):
        self.bin_dir = bin_dir or newest_bin_dir()
        self.dir = tempfile.mkdtemp(prefix="task-engine-peers-", dir=parent_dir)
        self.port = free_port()
        self.process = None
        # PostgreSQL refuses to run as root.
        self.user = {}
        if os.geteuid() == 0:
            owner = pwd.getpwnam("postgres")
            os.chown(self.dir, owner.pw_uid, owner.pw_gid)
            self.user = {"user": "postgres", "group": "postgres", "extra_groups": []}

    def __enter__(self):
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_):
        self.stop()

    def start(self):
        data = os.path.join(self.dir, "data")
        subprocess.run(
            [self.program("initdb"), "-D", data, "-U", "postgres", "-A", "trust", "-E", "UTF8", "--no-locale"],
            check=True, stdout=subprocess.DEVNULL, cwd=self.dir, **self.user,
        )
        options = {
            "listen_addresses": "127.0.0.1",
            "unix_socket_directories": "",
            "port": str(self.port),
            **SETTINGS,
        }
        arguments = [part for name, value in options.items() for part in ("-c", f"{name}={value}")]
        with open(os.path.join(self.dir, "log"), "w") as log:
            self.process = subprocess.Popen(
                [self.program("postgres"), "-D", data, *arguments],
                stdout=log, stderr=log, cwd=self.dir, **self.user,
            )
        deadline = time.monotonic() + 30
        while subprocess.run(
            [self.program("pg_isready"), "-q", "-h", "127.0.0.1", "-p", str(self.port)]
        ).returncode:
            if self.process.poll() is not None or time.monotonic() > deadline:
                with open(os.path.join(self.dir, "log")) as log:
                    raise RuntimeError(f"PostgreSQL did not start:\n{log.read()}")
            time.sleep(0.05)

    def stop(self):
        if self.process and self.process.poll() is None:
            # A fast shutdown: whoever is still connected is sent away.
            self.process.send_signal(signal.SIGINT)
            try:
                self.process.wait(30)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        shutil.rmtree(self.dir, ignore_errors=True)

    def program(self, name):
        return os.path.join(self.bin_dir, name)

    def url(self, database):
        return f"postgres://postgres@127.0.0.1:{self.port}/{database}"

    def version(self):
        with Session(self, "postgres") as session:
            return session.ask("SHOW server_version").split()[0]


class Session:
    """One connection, kept, by psql: Python brings no driver."""

    def __init__(self, server, database):
        self.psql = subprocess.Popen(
            [server.program("psql"), "-XqAt", "-v", "ON_ERROR_STOP=1", server.url(database)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            env={**os.environ, "PGOPTIONS": "-c client_min_messages=warning"},
        )
        self.backend = int(self.ask("SELECT pg_backend_pid()"))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.psql.stdin.close()
        self.psql.wait()
        self.psql.stdout.close()

    def ask(self, query):
        """The one line that a query answers."""
        self.psql.stdin.write(f"{query};\n")
        self.psql.stdin.flush()
        line = self.psql.stdout.readline()
        if not line:
            raise RuntimeError(f"no answer to: {query}")
        return line.rstrip("\n")

    def do(self, command):
        """A command without an answer; waits for its end."""
        self.ask(f"{command};\nSELECT 'done'")


def newest_bin_dir():
    found = glob.glob("/usr/lib/postgresql/*/bin/initdb")
    if found:
        return os.path.dirname(max(found, key=lambda path: float(path.split("/")[4])))
    if initdb := shutil.which("initdb"):
        return os.path.dirname(os.path.realpath(initdb))
    raise SystemExit("PostgreSQL's initdb is missing. Install it: sudo apt-get install postgresql")


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]
