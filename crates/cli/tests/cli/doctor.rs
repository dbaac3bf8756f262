//! `doctor` on databases with real problems; completions and manual pages.

use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt as _;

use serde_json::Value;
use task_engine::sqlite::rusqlite;
use task_engine::store::check::CHECK_NAMES;
use task_engine_test_harness::{TestServer, connect};

use super::support::{sandbox, sandbox_on};
use task_engine_test_harness::{CommandOutput, Sandbox, not_run, run_to_end, wait_until};

fn doctor(sandbox: &Sandbox, more: &[&str]) -> (CommandOutput, Value) {
    let finished = sandbox.run(&[&["doctor", "--json"], more].concat());
    let report =
        serde_json::from_str(&finished.out).unwrap_or_else(|e| panic!("{e}: {finished:?}"));
    (finished, report)
}

fn check(sandbox: &Sandbox, name: &str) -> Value {
    of(&doctor(sandbox, &[]).1, name)
}

fn of(report: &Value, name: &str) -> Value {
    let checks = report["checks"].as_array().expect("checks");
    let found = checks.iter().find(|check| check["name"] == name);
    found.unwrap_or_else(|| panic!("no check {name}: {report}")).clone()
}

#[track_caller]
fn assert_found(check: &Value, verdict: &str, reason: &str, remedy: &str) {
    assert_eq!(check["verdict"], verdict, "{check}");
    let contains = |field: &str, words: &str| check[field].as_str().unwrap_or("").contains(words);
    assert!(contains("message", reason), "{reason}: {check}");
    assert!(contains("remedy", remedy), "{remedy}: {check}");
}

/// Tests share a server.
const OF_OTHERS: [&str; 2] = ["connections", "transactions"];

fn names_of_bad(report: &Value) -> Vec<&str> {
    let checks = report["checks"].as_array().expect("checks").iter();
    let bad = checks.filter(|check| {
        check["verdict"] != "ok" && !OF_OTHERS.contains(&check["name"].as_str().unwrap())
    });
    bad.map(|check| check["name"].as_str().unwrap()).collect()
}

fn doctor_finds_stuck_work(sandbox: &Sandbox) {
    sandbox.ok(&["migrate"]);
    let (well, report) = doctor(sandbox, &["--deep"]);
    assert_eq!(well.code, Some(0), "{well:?}");
    assert_eq!(of(&report, "ledger")["verdict"], "ok");
    let settings = ["start", "--instance", "web 1", "--heartbeat", "100ms", "--dead-after", "1s"];
    let (engine, _) = sandbox.start_on_witness(60_000, &settings);
    let other = sandbox.start(&["start", "--instance", "other", "--recovery", "manual"]);
    sandbox.ok(&["create", "Stranger"]);
    sandbox.ok(&["schedules", "add", "nightly", "Stranger", "--cron", "0 3 * * *"]);
    sandbox.ok(&["queues", "pause", "mail", "--reason", "provider is down"]);
    let (fine, report) = doctor(sandbox, &[]);
    assert_eq!(fine.code, Some(0), "warnings are no illness: {fine:?}");
    assert_found(
        &of(&report, "unknown_classes"),
        "warning",
        "no living engine knows Stranger",
        "cancel",
    );
    let unserved = of(&report, "unserved_schedules");
    let reason = "no live engine knows Stranger";
    assert_found(&unserved, "warning", reason, "task-engine schedules remove nightly");
    let paused = of(&report, "paused_queues");
    assert_found(&paused, "warning", "(provider is down)", "task-engine queues resume mail");
    engine.signal("KILL");
    engine.end();
    let mut orphans = Value::Null;
    wait_until("it is dead", || {
        orphans = check(sandbox, "orphaned_tasks");
        orphans["verdict"] == "wrong"
    });
    assert_found(&orphans, "wrong", "1 task held by dead engines: web 1", "recover 'web 1'");
    let shown = sandbox.run(&["doctor"]);
    assert_eq!(shown.code, Some(6), "{shown:?}");
    for words in ["wrong    orphaned tasks", "→ task-engine recover 'web 1'", "warning  paused"] {
        assert!(shown.out.contains(words), "{words}: {}", shown.out);
    }
    sandbox.ok(&["recover", "web 1"]);
    assert_eq!(check(sandbox, "orphaned_tasks")["verdict"], "ok");
    // Now nothing is left to do this work, which is one finding.
    other.signal("KILL");
    other.end();
    let (found, report) = doctor(sandbox, &[]);
    let bad: Vec<_> = names_of_bad(&report);
    assert_eq!(bad, ["engines", "paused_queues"], "{found:?}");
    let engines = of(&report, "engines");
    let reason = engines["message"].as_str().unwrap();
    assert!(reason.starts_with("no engine is alive; tasks of Stranger"), "{engines}");
}

#[test]
fn doctor_finds_problems_on_sqlite() {
    doctor_finds_stuck_work(&sandbox());
}

#[tokio::test(flavor = "multi_thread")]
async fn doctor_finds_problems_on_postgresql() {
    let url = TestServer::shared().create_database().await;
    doctor_finds_stuck_work(&sandbox_on(&url));
}

/// The guide has every check in its table.
#[test]
fn guide_lists_every_check() {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/repairing.md");
    let text = fs::read_to_string(page).unwrap();
    let (_, table) = text.split_once("| check | what it finds |").expect("the table of checks");
    let cells = table.lines().filter_map(|line| line.strip_prefix("| ")?.split(" |").next());
    let listed: Vec<_> = cells
        .flat_map(|cell| cell.split(", "))
        .map(|name| name.trim_end_matches(" (`--deep`)").replace(' ', "_"))
        .collect();
    for name in CHECK_NAMES {
        assert!(listed.iter().any(|it| it == name), "{name} is not in docs/repairing.md");
    }
}

#[test]
fn doctor_finds_changed_sqlite_schema() {
    let sandbox = sandbox();
    let missing = sandbox.run(&["doctor"]);
    assert_eq!(missing.code, Some(3), "{missing:?}");
    sandbox.ok(&["migrate"]);
    let file = sandbox.path("task-engine.db");
    let db = rusqlite::Connection::open(&file).unwrap();
    db.execute_batch("DROP INDEX task_engine_waiting_lanes").unwrap();
    let (found, report) = doctor(&sandbox, &[]);
    assert_eq!(found.code, Some(6), "{found:?}");
    let schema = of(&report, "schema");
    let name = "the index task_engine_waiting_lanes is missing";
    assert_found(&schema, "wrong", name, "CREATE INDEX task_engine_waiting_lanes");
    // The remedy is one.
    db.execute_batch(schema["remedy"].as_str().unwrap()).unwrap();
    assert_eq!(check(&sandbox, "schema")["verdict"], "ok");
    db.execute_batch("DELETE FROM task_engine_migrations WHERE version > 2").unwrap();
    assert_found(&check(&sandbox, "tables"), "wrong", "version 2", "task-engine migrate");
    fs::set_permissions(&file, fs::Permissions::from_mode(0o666)).unwrap();
    assert_found(&check(&sandbox, "permissions"), "warning", "everybody", "chmod o-w");
}

#[tokio::test(flavor = "multi_thread")]
async fn doctor_finds_dangerous_server_settings() {
    let url = TestServer::shared().create_database().await;
    let sandbox = sandbox_on(&url);
    let none = check(&sandbox, "tables");
    assert_found(&none, "wrong", "there are none", "task-engine migrate");
    sandbox.ok(&["migrate"]);
    let (well, report) = doctor(&sandbox, &["--deep"]);
    assert_eq!(well.code, Some(0), "{well:?}");
    let checks = report["checks"].as_array().unwrap();
    // Connections and transactions are those of the other tests, too.
    let others = ["connections", "transactions", "engines"];
    for check in checks.iter().filter(|check| !others.contains(&check["name"].as_str().unwrap())) {
        assert_eq!(check["verdict"], "ok", "{check}");
    }
    let client = connect(&url).await;
    let database = url.rsplit('/').next().unwrap();
    let set = format!("ALTER DATABASE \"{database}\" SET synchronous_commit = off");
    client.batch_execute(&set).await.unwrap();
    client.batch_execute("DROP INDEX task_engine.waiting_tasks_by_lane").await.unwrap();
    let function = "CREATE OR REPLACE FUNCTION task_engine.wake(task_class text, queue text DEFAULT NULL, \
        priority integer DEFAULT NULL) RETURNS boolean LANGUAGE sql AS 'SELECT true'";
    client.batch_execute(function).await.unwrap();
    let (found, report) = doctor(&sandbox, &[]);
    assert_eq!(found.code, Some(6), "{found:?}");
    let durability = of(&report, "durability");
    assert_found(&durability, "wrong", "synchronous_commit is off", "SET synchronous_commit = on");
    let schema = of(&report, "schema");
    assert_found(
        &schema,
        "wrong",
        "waiting_tasks_by_lane is missing",
        "CREATE INDEX waiting_tasks_by_lane",
    );
    assert_found(
        &schema,
        "wrong",
        "the function task_engine.wake(text,text,integer) is not",
        "CREATE OR REPLACE FUNCTION",
    );
    // The remedy is one.
    client.batch_execute(schema["remedy"].as_str().unwrap()).await.unwrap();
    let reset = format!("ALTER DATABASE \"{database}\" RESET ALL");
    client.batch_execute(&reset).await.unwrap();
    assert_eq!(check(&sandbox, "schema")["verdict"], "ok");
    assert_eq!(check(&sandbox, "durability")["verdict"], "ok");
    let scratch = "SELECT count(*) FROM pg_namespace WHERE nspname LIKE 'te_check%'";
    assert_eq!(client.query_one(scratch, &[]).await.unwrap().get::<_, i64>(0), 0);
    let set = format!("ALTER DATABASE \"{database}\" SET default_transaction_read_only = on");
    client.batch_execute(&set).await.unwrap();
    assert_found(&check(&sandbox, "writable"), "wrong", "read_only is on", "RESET");
}

#[tokio::test(flavor = "multi_thread")]
async fn doctor_compares_application_schema() {
    let url = TestServer::shared().create_database().await;
    let sandbox = sandbox_on(&url);
    sandbox.ok(&["migrate", "--schema", "jobs"]);
    assert_eq!(of(&doctor(&sandbox, &["--schema", "jobs"]).1, "schema")["verdict"], "ok");
    connect(&url).await.batch_execute("DROP INDEX jobs.waiting_tasks_by_lane").await.unwrap();
    let schema = of(&doctor(&sandbox, &["--schema", "jobs"]).1, "schema");
    assert_found(&schema, "wrong", "is missing", "ON jobs.waiting_tasks");
}

#[tokio::test(flavor = "multi_thread")]
async fn doctor_finds_forgotten_transaction() {
    let url = TestServer::shared().create_database().await;
    let sandbox = sandbox_on(&url);
    sandbox.ok(&["migrate"]);
    let client = connect(&format!("{url}?application_name=forgetful")).await;
    client.batch_execute("BEGIN; LOCK TABLE task_engine.waiting_tasks").await.unwrap();
    let pid: i32 = client.query_one("SELECT pg_backend_pid()", &[]).await.unwrap().get(0);
    let mut report = Value::Null;
    wait_until("it is seen", || {
        report = doctor(&sandbox, &[]).1;
        of(&report, "transactions")["verdict"] == "wrong"
    });
    let held = of(&report, "transactions");
    let words = format!("process {pid} (postgres, forgetful), idle in transaction");
    assert_found(&held, "wrong", &words, &format!("pg_terminate_backend({pid})"));
    assert_found(&held, "wrong", "waiting_tasks (AccessExclusiveLock)", "");
    // A check that cannot be read is reported as unknown; the others are complete.
    assert_eq!(of(&report, "tasks")["verdict"], "unknown");
    client.batch_execute("COMMIT").await.unwrap();
    assert_eq!(check(&sandbox, "transactions")["verdict"], "ok");
}

/// What the server hides from a user is not reported as being fine.
#[tokio::test(flavor = "multi_thread")]
async fn doctor_reports_hidden_transactions() {
    let url = TestServer::shared().create_database().await;
    sandbox_on(&url).ok(&["migrate"]);
    let client = connect(&url).await;
    let poor = "CREATE ROLE blind LOGIN; GRANT USAGE ON SCHEMA task_engine TO blind;
                GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA task_engine TO blind";
    client.batch_execute(poor).await.unwrap();
    let (_, place) = url.split_once('@').unwrap();
    let sandbox = sandbox_on(&format!("postgres://blind@{place}"));
    client.batch_execute("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1").await.unwrap();
    let hidden = check(&sandbox, "transactions");
    assert_found(
        &hidden,
        "unknown",
        "may not see their transactions",
        "pg_read_all_stats TO blind",
    );
    client.batch_execute("COMMIT; GRANT pg_read_all_stats TO blind").await.unwrap();
    client.batch_execute("BEGIN; SELECT 1").await.unwrap();
    assert_eq!(check(&sandbox, "transactions")["verdict"], "ok");
    client.batch_execute("COMMIT; REVOKE pg_read_all_stats FROM blind").await.unwrap();
    // A lock is seen, and its age is not: it counts as old.
    client.batch_execute("BEGIN; LOCK TABLE task_engine.waiting_tasks").await.unwrap();
    let report = doctor(&sandbox, &[]).1;
    let held = of(&report, "transactions");
    assert_found(&held, "wrong", "has locked waiting_tasks", "pg_terminate_backend");
    assert!(!held.to_string().contains("open for"), "{held}");
    let tasks = of(&report, "tasks");
    assert_found(&tasks, "unknown", "see the check of transactions", "");
}

/// A dump writes conditions in another form.
#[tokio::test(flavor = "multi_thread")]
async fn restored_dump_has_expected_schema() {
    let server = TestServer::shared();
    let url = server.create_database().await;
    sandbox_on(&url).ok(&["migrate"]);
    if !server.program("pg_dump").arg("--version").output().is_ok_and(|it| it.status.success()) {
        not_run("restored_dump_has_expected_schema", "pg_dump is missing");
        return;
    }
    let dump = server.program("pg_dump").arg(&url).output().unwrap();
    assert!(dump.status.success(), "{dump:?}");
    let copy = server.create_database().await;
    let mut psql = server.program("psql");
    psql.args(["--quiet", "--set", "ON_ERROR_STOP=1", &copy]);
    let restored = run_to_end(psql, &dump.stdout);
    assert_eq!(restored.code, Some(0), "{restored:?}");
    let schema = check(&sandbox_on(&copy), "schema");
    assert_eq!(schema["verdict"], "ok", "{schema}");
}

/// All tables are named that something is wrong with.
#[tokio::test(flavor = "multi_thread")]
async fn doctor_names_all_affected_tables() {
    let url = TestServer::shared().create_database().await;
    let sandbox = sandbox_on(&url);
    sandbox.ok(&["migrate"]);
    let client = connect(&url).await;
    for table in ["waiting_tasks", "claims"] {
        let off = format!("ALTER TABLE task_engine.{table} SET (autovacuum_enabled = false)");
        client.batch_execute(&off).await.unwrap();
    }
    let vacuum = check(&sandbox, "vacuum");
    assert_found(&vacuum, "wrong", "autovacuum is off for claims, waiting_tasks", "");
    // The remedy is one.
    client.batch_execute(vacuum["remedy"].as_str().unwrap()).await.unwrap();
    assert_eq!(check(&sandbox, "vacuum")["verdict"], "ok");
    assert_eq!(check(&sandbox, "distribution")["verdict"], "ok");
    // Citus lists distributed tables in its catalog; the test needs only that.
    client
        .batch_execute(
            "SET allow_system_table_mods = on;
             CREATE TABLE pg_catalog.pg_dist_partition (logicalrel regclass);
             INSERT INTO pg_catalog.pg_dist_partition VALUES ('task_engine.claims')",
        )
        .await
        .unwrap();
    let (found, report) = doctor(&sandbox, &[]);
    assert_eq!(found.code, Some(6), "{found:?}");
    let distributed = of(&report, "distribution");
    assert_found(&distributed, "wrong", "claims (distributed by Citus)", "undistribute_table");
}

/// Processes that end leave no open transaction and no statement under way.
#[tokio::test(flavor = "multi_thread")]
async fn commands_leave_server_log_clean() {
    let server = TestServer::start();
    let sandbox = sandbox_on(&server.create_database().await);
    sandbox.ok(&["migrate"]);
    sandbox.ok(&["create", "WaitingTask", "--count", "200"]);
    for _ in 0..3 {
        for command in [
            &["verify"][..],
            &["doctor"],
            &["tasks"],
            &["why", "1"],
            &["show", "1"],
            &["stats"],
            &["export"],
        ] {
            sandbox.ok(command);
        }
    }
    let log = server.log();
    for words in ["unexpected EOF", "connection to client lost", "could not send data"] {
        assert!(!log.contains(words), "{words}: {log}");
    }
}

/// Drops notifications, as a pooler in transaction mode does.
#[tokio::test(flavor = "multi_thread")]
async fn doctor_finds_lost_notifications() {
    let url = TestServer::shared().create_database().await;
    let sandbox = sandbox_on(&url);
    sandbox.ok(&["migrate"]);
    assert_eq!(check(&sandbox, "wake_ups")["verdict"], "ok");
    let server = url.split('@').nth(1).unwrap().split('/').next().unwrap().to_owned();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for client in listener.incoming().flatten() {
            let server = TcpStream::connect(&server).unwrap();
            let (mut from, mut to) = (client.try_clone().unwrap(), server.try_clone().unwrap());
            std::thread::spawn(move || std::io::copy(&mut from, &mut to));
            std::thread::spawn(move || pass_all_but_notifications(server, client));
        }
    });
    let database = url.rsplit('/').next().unwrap();
    let deaf = sandbox_on(&format!("postgres://postgres@127.0.0.1:{port}/{database}"));
    let (found, report) = doctor(&deaf, &[]);
    assert_eq!(found.code, Some(6), "{found:?}");
    let wake_ups = of(&report, "wake_ups");
    assert_found(&wake_ups, "wrong", "no notification has arrived", "pool_mode = session");
}

fn pass_all_but_notifications(mut server: TcpStream, mut client: TcpStream) -> Option<()> {
    loop {
        let mut head = [0; 5];
        server.read_exact(&mut head).ok()?;
        let length = u32::from_be_bytes([head[1], head[2], head[3], head[4]]);
        let mut body = vec![0; length as usize - 4];
        server.read_exact(&mut body).ok()?;
        if head[0] != b'A' {
            client.write_all(&[&head[..], &body].concat()).ok()?;
        }
    }
}

#[test]
fn doctor_reports_unreachable_server() {
    let sandbox = sandbox_on("postgres://postgres:secret@127.0.0.1:1/none");
    let (found, report) = doctor(&sandbox, &[]);
    assert_eq!(found.code, Some(6), "{found:?}");
    assert_found(&of(&report, "connection"), "wrong", "cannot be reached", "start the server");
    assert!(!format!("{found:?}").contains("secret"), "{found:?}");
}

#[test]
fn verify_reports_violations_and_scope() {
    let sandbox = sandbox();
    sandbox.ok(&["create", "a", "--count", "3"]);
    let well = sandbox.run(&["verify"]);
    assert_eq!((well.code, well.out.as_str()), (Some(0), ""), "{well:?}");
    assert!(well.err.contains("checked 3 tasks (3 waiting, 0 running)"), "{}", well.err);
    let db = rusqlite::Connection::open(sandbox.path("task-engine.db")).unwrap();
    db.execute_batch("DELETE FROM task_engine_waiting_tasks WHERE task_id = 2").unwrap();
    let broken = sandbox.run(&["verify"]);
    assert_eq!(broken.code, Some(6), "{broken:?}");
    assert!(broken.out.contains("task 2 "), "{}", broken.out);
    let json = sandbox.run(&["verify", "--json"]);
    let report: Value = serde_json::from_str(&json.out).unwrap();
    assert_eq!((json.code, &report["checked"]["tasks"]), (Some(6), &3.into()));
    assert_eq!(report["violations"].as_array().unwrap().len(), 1, "{report}");
    assert_eq!(report["violations"][0]["kind"], "task_lost", "{report}");
    assert_found(&of(&doctor(&sandbox, &["--deep"]).1, "ledger"), "wrong", "task 2", "verify");
    let lost = sandbox.run(&["export"]);
    assert_eq!(lost.code, Some(1), "a lost task is not passed over: {lost:?}");
}

#[test]
fn completions_and_manual_pages() {
    let sandbox = sandbox();
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let text = sandbox.ok(&["completions", shell]);
        assert!(text.contains("doctor") && text.contains("export"), "{shell}");
    }
    assert_eq!(sandbox.run(&["completions", "tcsh"]).code, Some(2));
    let page = sandbox.ok(&["man"]);
    assert!(page.contains(".TH task-engine 1") && page.contains("Exit codes"), "{page}");
    let page = sandbox.ok(&["man", "queues", "pause"]);
    assert!(page.contains(".TH task-engine-queues-pause 1"), "{page}");
    assert_eq!(sandbox.run(&["man", "nonsense"]).code, Some(3));
    let written = sandbox.ok(&["man", "--dir", "pages"]);
    assert!(written.lines().any(|line| line == "pages/task-engine-import.1"), "{written}");
    for file in written.lines() {
        let text = fs::read_to_string(sandbox.path(file)).unwrap();
        assert!(text.contains(".SH NAME"), "{file}");
    }
    assert!(!written.contains("supervise-executable"), "hidden commands are not listed: {written}");
}
