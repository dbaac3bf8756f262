//! Counts the statements that an engine sends to PostgreSQL: a proxy in front of the
//! server reads the messages of the protocol. Only the engine's own connections pass
//! it, so nothing else is counted. A transaction of several statements counts once.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use task_engine_test_harness::TestServer;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use crate::store::TIMEOUT;

/// An engine that sends nothing for so long is idle: all it has to send are
/// heartbeats, polls and probes.
const QUIET: Duration = Duration::from_millis(1500);

pub(crate) struct StatementCounter {
    port: u16,
    statements: Arc<Mutex<Vec<String>>>,
}

impl StatementCounter {
    pub(crate) async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let statements = Arc::<Mutex<Vec<String>>>::default();
        let counter = statements.clone();
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                tokio::spawn(forward(client, counter.clone()));
            }
        });
        Self { port, statements }
    }

    /// A URL that passes the proxy.
    pub(crate) fn url(&self, direct: &str) -> String {
        let server = format!(":{}/", TestServer::shared().port());
        assert!(direct.contains(&server), "{direct}");
        direct.replace(&server, &format!(":{}/", self.port))
    }

    /// The statements that an idle engine sends in six seconds.
    pub(crate) async fn idle_in_six_seconds(&self) -> Vec<String> {
        self.until_quiet().await;
        let before = self.count();
        tokio::time::sleep(Duration::from_secs(6)).await;
        self.statements.lock().unwrap()[before..].to_vec()
    }

    /// Waits until the engine has registered, and then sends no statement for a while.
    async fn until_quiet(&self) {
        let begun = Instant::now();
        let (mut last, mut since) = (self.count(), Instant::now());
        while !self.has_registered() || since.elapsed() < QUIET {
            assert!(begun.elapsed() < TIMEOUT, "the engine does not become idle");
            tokio::time::sleep(Duration::from_millis(20)).await;
            if self.count() != last {
                (last, since) = (self.count(), Instant::now());
            }
        }
    }

    fn has_registered(&self) -> bool {
        let registers = |sql: &String| sql.contains("INSERT INTO task_engine.instances");
        self.statements.lock().unwrap().iter().any(registers)
    }

    fn count(&self) -> usize {
        self.statements.lock().unwrap().len()
    }
}

async fn forward(client: TcpStream, sent: Arc<Mutex<Vec<String>>>) -> std::io::Result<()> {
    let server = TcpStream::connect(("127.0.0.1", TestServer::shared().port())).await?;
    let (mut from_client, mut to_client) = client.into_split();
    let (mut from_server, mut to_server) = server.into_split();
    tokio::spawn(async move { tokio::io::copy(&mut from_server, &mut to_client).await });
    let mut prepared = HashMap::new();
    // The first messages have no type: requests for encryption, which this server
    // refuses, and then the startup message.
    let (mut started, mut in_transaction) = (false, false);
    loop {
        let kind = if started { Some(from_client.read_u8().await?) } else { None };
        let length = from_client.read_u32().await?;
        let mut body = vec![0; usize::try_from(length).unwrap() - 4];
        from_client.read_exact(&mut body).await?;
        let text = String::from_utf8_lossy(&body).into_owned();
        let mut texts = text.split('\0').map(str::to_owned);
        let statement = match (kind, texts.next(), texts.next()) {
            // Parse: a name and its statement.
            (Some(b'P'), Some(name), Some(sql)) => {
                prepared.insert(name, sql);
                None
            }
            // Bind, which comes before each execution: a portal and a name.
            (Some(b'B'), _, Some(name)) => Some(prepared.get(&name).cloned().unwrap_or(name)),
            // A simple query.
            (Some(b'Q'), sql, _) => sql,
            _ => None,
        };
        if let Some(sql) = statement {
            let (begins, ends) = (sql.starts_with("START"), ["COMMIT", "ROLLBACK"]);
            let counts = !in_transaction;
            in_transaction = begins || (in_transaction && !ends.contains(&sql.as_str()));
            if counts {
                sent.lock().unwrap().push(sql);
            }
        }
        started |= kind.is_none() && body[..2] == [0, 3];
        if let Some(kind) = kind {
            to_server.write_u8(kind).await?;
        }
        to_server.write_u32(length).await?;
        to_server.write_all(&body).await?;
    }
}
