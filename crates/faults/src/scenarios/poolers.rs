//! A pooler between engines and server.

use std::io::Write as _;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Stdio};

use task_engine_conformance::TestServer;

use crate::harness::arena::Arena;
use crate::harness::machine::must;
use crate::orders::Duty;

/// A pgbouncer before a server.
struct Pooler {
    process: Child,
    port: u16,
}

impl Pooler {
    fn start(arena: &Arena, server: &TestServer, mode: &str) -> Self {
        let port = std::iter::repeat_with(|| fastrand::u16(15_000..32_000))
            .find(|port| std::net::TcpListener::bind(("127.0.0.1", *port)).is_ok())
            .expect("a free port");
        let file = arena.path("pgbouncer.ini");
        let settings = format!(
            "[databases]\n* = host=127.0.0.1 port={} user=postgres\n[pgbouncer]\nlisten_addr=127.0.0.1\n\
             listen_port={port}\nunix_socket_dir=\nauth_type=any\npool_mode={mode}\n\
             default_pool_size={}\nmax_client_conn=200\nignore_startup_parameters=extra_float_digits\n",
            server.port(),
            if mode == "session" { 40 } else { 2 }
        );
        let mut opened = std::fs::File::create(&file).expect("a file");
        opened.write_all(settings.as_bytes()).expect("settings");
        must("chmod", &["755", &arena.path("").display().to_string()]);
        assert!(
            std::path::Path::new("/usr/sbin/pgbouncer").exists(),
            "pgbouncer is missing: apt-get install pgbouncer"
        );
        let mut command = server.program("/usr/sbin/pgbouncer");
        let process = command
            .arg(&file)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(arena.fleet.log("pgbouncer"))
            .process_group(0)
            .spawn()
            .expect("pgbouncer runs");
        arena.until("pgbouncer listens", || {
            std::net::TcpStream::connect(("127.0.0.1", port)).is_ok()
        });
        Self { process, port }
    }
}

impl Drop for Pooler {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// F17: a pooler that gives each transaction another connection, of two, and
/// forgets prepared statements. Everybody says so; whatever has happened until
/// then, nothing is lost, and without the pooler all is done.
pub fn transaction_pooler(arena: &mut Arena) {
    let server = TestServer::start();
    arena.on_server(&server);
    let direct = arena.database.clone();
    let pooler = through(arena, &server, "transaction");
    arena.start(&["a", "b"]);
    arena.produce(20, 5, 20, Duty::work(5));
    for name in ["a", "b"] {
        arena.until(format_args!("{name} says why"), || {
            arena.fleet.logged(name).contains("a pooler in between that forgets")
        });
    }
    arena.note(format!("{} tasks confirmed through it", arena.confirmed()));
    arena.kill_producer();
    for name in ["a", "b"] {
        arena.fleet.forget(name);
    }
    drop(pooler);
    arena.database = direct;
    arena.start(&["a", "b"]);
    arena.produce(100, 5, 10, Duty::work(5));
    arena.account();
}

/// F17: everything goes through a pooler that gives each client a connection of
/// its own.
pub fn session_pooler(arena: &mut Arena) {
    let server = TestServer::start();
    arena.on_server(&server);
    let pooler = through(arena, &server, "session");
    arena.start(&["a", "b"]);
    arena.produce(200, 5, 20, Duty::work(5));
    arena.account();
    drop(pooler);
}

fn through(arena: &mut Arena, server: &TestServer, mode: &str) -> Pooler {
    let pooler = Pooler::start(arena, server, mode);
    let (direct, through) = (server.port().to_string(), pooler.port.to_string());
    arena.database = arena.database.replace(&direct, &through);
    pooler
}
