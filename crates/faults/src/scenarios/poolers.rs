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
        let port = (20_000..32_000)
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

/// F17: everything goes through a pooler that gives each transaction another
/// connection, of two.
pub fn transaction_pooler(arena: &mut Arena) {
    through(arena, "transaction");
}

/// F17: the same with a pooler that gives each client a connection of its own.
pub fn session_pooler(arena: &mut Arena) {
    through(arena, "session");
}

fn through(arena: &mut Arena, mode: &str) {
    let server = TestServer::start();
    arena.on_server(&server);
    let pooler = Pooler::start(arena, &server, mode);
    let (direct, through) = (server.port().to_string(), pooler.port.to_string());
    arena.database = arena.database.replace(&direct, &through);
    arena.start(&["a", "b"]);
    arena.produce(200, 5, 20, Duty::work(5));
    arena.account();
    drop(pooler);
}
