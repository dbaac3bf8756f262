//! A real pgbouncer before a [`TestServer`]. It ends with the test process.

use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};

use crate::server::{TestServer, accepts_connections, free_port};
use crate::wait::wait_until;

/// Where Debian has it.
const PROGRAM: &str = "/usr/sbin/pgbouncer";

/// `$1` is the program, `$2` its settings. Each line reloads them; the end of the
/// input ends the program.
const SUPERVISOR: &str = r#"
"$1" "$2" >/dev/null 2>&1 </dev/null &
pooler=$!
echo "started"
while read -r command; do
    kill -HUP "$pooler"
done
kill -KILL "$pooler"
"#;

/// In transaction mode, other programs have prepared statements with the names of
/// tokio-postgres: a store that uses named statements fails at once.
const NAMES_TAKEN: &str = "connect_query='DO $$ BEGIN FOR i IN 0..499 LOOP \
     EXECUTE ''PREPARE s'' || i || '' AS SELECT 1''; END LOOP; END $$'";

/// A pooler that stops when this is dropped or the process ends.
#[derive(Debug)]
pub struct TestPooler {
    supervisor: Child,
    port: u16,
    file: PathBuf,
}

impl TestPooler {
    /// Starts one with this many connections per database. The mode is `session`,
    /// `transaction` or `statement`.
    ///
    /// # Panics
    /// If there is no pgbouncer on this machine, or it does not start.
    #[must_use]
    pub fn start(server: &TestServer, mode: &str, connections: u32) -> Self {
        Self::start_with(server, mode, connections, "")
    }

    /// The same with more settings.
    ///
    /// # Panics
    /// As [`TestPooler::start`].
    #[must_use]
    pub fn start_with(server: &TestServer, mode: &str, connections: u32, more: &str) -> Self {
        assert!(
            Path::new(PROGRAM).exists(),
            "these tests need pgbouncer: on Debian or Ubuntu `apt-get install pgbouncer`"
        );
        let port = free_port();
        let taken = if mode == "transaction" { NAMES_TAKEN } else { "" };
        let settings = format!(
            "[databases]\n* = host=127.0.0.1 port={} user=postgres {taken}\n\
             [pgbouncer]\nlisten_addr=127.0.0.1\nlisten_port={port}\nunix_socket_dir=\n\
             auth_type=any\npool_mode={mode}\ndefault_pool_size={connections}\n\
             max_client_conn=500\nserver_idle_timeout=2\n\
             ignore_startup_parameters=extra_float_digits\n{more}\n",
            server.port(),
        );
        let file = server.directory().join(format!("pgbouncer-{port}.ini"));
        std::fs::write(&file, settings).expect("a file in the server's directory");
        let mut supervisor = server
            .program("/bin/sh")
            .args(["-c", SUPERVISOR, "supervisor", PROGRAM])
            .arg(&file)
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("a shell");
        let mut started = String::new();
        let output = supervisor.stdout.take().expect("a piped stdout");
        BufReader::new(output).read_line(&mut started).expect("the supervisor starts");
        wait_until(format_args!("pgbouncer listens: {}", file.display()), || {
            accepts_connections(port)
        });
        Self { supervisor, port, file }
    }

    /// Switches to another mode.
    ///
    /// # Panics
    /// If it is gone.
    pub fn switch(&mut self, mode: &str) {
        let settings = std::fs::read_to_string(&self.file).expect("its settings");
        let lines = settings.lines().map(|line| match line.split_once('=') {
            Some(("pool_mode", _)) => format!("pool_mode={mode}\n"),
            _ => format!("{line}\n"),
        });
        std::fs::write(&self.file, lines.collect::<String>()).expect("its settings");
        writeln!(self.supervisor.stdin.as_mut().expect("a pipe"), "reload").expect("a supervisor");
    }

    /// The URL of a database of the server, through this pooler.
    ///
    /// # Panics
    /// If it is not the URL of a [`TestServer`].
    #[must_use]
    pub fn through(&self, url: &str) -> String {
        let (server, database) = url.rsplit_once('/').expect("a URL with a database");
        let (host, _) = server.rsplit_once(':').expect("a URL with a port");
        format!("{host}:{}/{database}", self.port)
    }
}

impl Drop for TestPooler {
    fn drop(&mut self) {
        drop(self.supervisor.stdin.take());
        let _ = self.supervisor.wait();
    }
}
