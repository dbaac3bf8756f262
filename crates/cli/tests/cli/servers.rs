//! Servers that are silent, frozen, read-only, or of the wrong encoding.

use std::net::TcpListener;
use std::time::{Duration, Instant};

use task_engine_test_harness::{TestServer, connect};
use tokio::runtime::Runtime;

use super::support::{sandbox, sandbox_on};
use task_engine_test_harness::wait_until;

/// Takes connections, and never answers: as a server that is suspended does.
struct SilentServer(TcpListener);

impl SilentServer {
    fn start() -> Self {
        // The system takes connections for a listener that does not.
        Self(TcpListener::bind("127.0.0.1:0").expect("a free port"))
    }

    fn host(&self) -> String {
        format!("127.0.0.1:{}", self.0.local_addr().expect("a port").port())
    }

    fn url(&self) -> String {
        format!("postgres://postgres@{}/tasks", self.host())
    }
}

async fn execute(url: &str, statements: &str) {
    let client = connect(url).await;
    client.batch_execute(statements).await.expect("it can be done");
}

#[test]
fn commands_fail_on_silent_server() {
    let silent = SilentServer::start();
    let sandbox = sandbox_on(&silent.url());
    let words: [&[&str]; 9] = [
        &["stats"],
        &["doctor"],
        &["create", "a"],
        &["tasks"],
        &["migrate"],
        &["instances"],
        &["verify"],
        &["why", "1"],
        &["start"],
    ];
    let begun = Instant::now();
    std::thread::scope(|scope| {
        for words in words {
            let sandbox = &sandbox;
            scope.spawn(move || {
                let ended = sandbox.run(words);
                assert!(ended.code.is_some_and(|code| code != 0), "{words:?}: {ended:?}");
                let said = ended.out + &ended.err;
                assert!(said.contains("no answer within 10 s"), "{words:?}: {said}");
            });
        }
    });
    assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", begun.elapsed());
}

#[test]
fn first_signal_ends_connection_attempt() {
    let silent = SilentServer::start();
    let sandbox = sandbox_on(&format!("{}?connect_timeout=60", silent.url()));
    for (words, signal) in [
        (&["start"][..], "TERM"),
        (&["start", "--no-migrate"], "INT"),
        (&["start", "--web", "0"], "TERM"),
        (&["web", "0"], "TERM"),
    ] {
        let connecting = sandbox.start(words);
        let _held = silent.0.accept().expect("it connects");
        connecting.signal(signal);
        let begun = Instant::now();
        let ended = connecting.end();
        assert_eq!(ended.code, Some(0), "{words:?}: {}", ended.err);
        assert!(begun.elapsed() < Duration::from_secs(5), "{words:?}");
    }
}

#[test]
fn second_host_is_used_within_seconds() {
    let runtime = Runtime::new().unwrap();
    let url = runtime.block_on(TestServer::shared().create_database());
    sandbox_on(&url).ok(&["migrate"]);
    let silent = SilentServer::start();
    let both = url.replace('@', &format!("@{},", silent.host()));
    let sandbox = sandbox_on(&both);
    let begun = Instant::now();
    assert_eq!(sandbox.ok(&["create", "WaitingTask", r#"{"waiting_time": 0}"#]), "1\n");
    assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
    let engine = sandbox.start(&["start"]);
    wait_until("the task ends", || engine.err().contains("finished task 1"));
    assert!(engine.err().contains(&silent.host()), "both hosts are named: {}", engine.err());
    // The connection for wake-ups finds the second host, too.
    sandbox.ok(&["create", "WaitingTask", r#"{"waiting_time": 0}"#]);
    wait_until("the task ends", || engine.err().contains("finished task 2"));
    engine.signal("TERM");
    assert_eq!(engine.end().code, Some(0));
}

#[test]
fn message_names_each_host_error() {
    let runtime = Runtime::new().unwrap();
    let server = TestServer::shared();
    let url = runtime.block_on(server.create_database());
    let database = url.rsplit('/').next().expect("a name");
    let read_only = format!("ALTER DATABASE {database} SET default_transaction_read_only = on");
    runtime.block_on(execute(&url, &read_only));
    let silent = SilentServer::start();
    let both = url.replace('@', &format!("@{},127.0.0.1:1,", silent.host()));
    let failed = sandbox_on(&both).run(&["tasks"]);
    assert_eq!(failed.code, Some(1));
    for words in [
        format!("{}: no answer within 2 s", silent.host()),
        "127.0.0.1:1: error connecting".to_owned(),
        format!("127.0.0.1:{}: it takes no writes", server.port()),
    ] {
        assert!(failed.err.contains(&words), "{words}: {}", failed.err);
    }
    // A read-only connection is an option.
    let any = format!("{both}?target_session_attrs=any");
    let tasks = sandbox_on(&any).run(&["tasks"]);
    assert!(tasks.err.contains("run `task-engine migrate`"), "it is connected: {}", tasks.err);
}

#[test]
fn commands_fail_when_server_freezes() {
    let runtime = Runtime::new().unwrap();
    let server = TestServer::start();
    let url = runtime.block_on(server.create_database());
    let sandbox = sandbox_on(&format!("{url}?connect_timeout=2"));
    sandbox.ok(&["migrate"]);
    let engine = sandbox.start(&["start", "--heartbeat", "1s"]);
    engine.wait_for_log("started with");
    server.freeze();
    engine.wait_for_log("takes no new connection within 2s");
    engine.signal("TERM");
    let begun = Instant::now();
    let ended = engine.end();
    assert!(begun.elapsed() < Duration::from_secs(25), "{:?}: {}", begun.elapsed(), ended.err);
    server.thaw();
    sandbox.ok(&["tasks"]);
}

#[test]
fn encoding_other_than_utf8_is_refused() {
    let runtime = Runtime::new().unwrap();
    let url = runtime.block_on(TestServer::shared().create_database());
    for (name, encoding) in [("ascii_only", "SQL_ASCII"), ("western_only", "LATIN1")] {
        let create = format!("CREATE DATABASE {name} ENCODING '{encoding}' TEMPLATE template0");
        runtime.block_on(execute(&url, &create));
        let (server, _) = url.rsplit_once('/').expect("a name");
        let sandbox = sandbox_on(&format!("{server}/{name}"));
        for words in [&["migrate"][..], &["start"], &["tasks"]] {
            let refused = sandbox.run(words);
            assert_eq!(refused.code, Some(1), "{words:?}: {refused:?}");
            for part in [encoding, "CREATE DATABASE tasks ENCODING 'UTF8' TEMPLATE template0"] {
                assert!(refused.err.contains(part), "{words:?}: {}", refused.err);
            }
        }
        let doctor = sandbox.run(&["doctor"]);
        assert_eq!(doctor.code, Some(6));
        assert!(doctor.out.contains("wrong    encoding"), "{}", doctor.out);
    }
}

#[test]
fn sharded_schema_is_refused() {
    let runtime = Runtime::new().unwrap();
    let url = runtime.block_on(TestServer::shared().create_database());
    let database = url.rsplit('/').next().expect("a name");
    // The setting is known without the extension, too.
    let on = format!("ALTER DATABASE {database} SET citus.enable_schema_based_sharding = on");
    runtime.block_on(execute(&url, &on));
    let refused = sandbox_on(&url).run(&["migrate"]);
    assert_eq!(refused.code, Some(1), "{refused:?}");
    assert!(refused.err.contains("SET citus.enable_schema_based_sharding = off"), "{refused:?}");
}

#[test]
fn engine_ends_when_sqlite_log_is_deleted() {
    let sandbox = sandbox();
    sandbox.ok(&["create", "WaitingTask", r#"{"waiting_time": 0}"#]);
    let engine = sandbox.start(&["start", "--heartbeat", "1s"]);
    wait_until("the end of the task is recorded", || sandbox.status("1") == "stopped");
    for log in ["task-engine.db-wal", "task-engine.db-shm"] {
        std::fs::remove_file(sandbox.path(log)).expect("a log");
    }
    let begun = Instant::now();
    let ended = engine.end();
    assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
    assert_eq!(ended.code, Some(1), "{}", ended.err);
    for part in ["task-engine.db-wal was deleted or replaced", "restart all programs"] {
        assert!(ended.err.contains(part), "{part}: {}", ended.err);
    }
    // All commits are in the file, and the next engine continues.
    assert_eq!(sandbox.status("1"), "stopped");
    sandbox.ok(&["verify"]);
}
