//! Wrong input: a clear message, the right exit code, and nothing changed.

use task_engine::postgres::tokio_postgres;
use task_engine::sqlite::rusqlite;
use task_engine_test_harness::{TestServer, connect};

use super::support::{sandbox, sandbox_on};
use task_engine_test_harness::{Sandbox, wait_until};

/// Arguments, exit code, and a part of the message.
type WrongInput<'a> = (Vec<&'a str>, i32, &'a str);

fn wrong_inputs(deep: &str) -> Vec<WrongInput<'_>> {
    vec![
        (vec!["create", "a", "[1]"], 2, "a JSON object is needed"),
        (vec!["create", "a", "-1"], 2, "this is a number"),
        (vec!["create", "a", "{"], 2, "not valid JSON"),
        (vec!["create", "a", "{'b': 1}"], 2, r#"like '{"name": "value"}'"#),
        (vec!["create", "a", r#"{"a":"\u0000"}"#], 2, r"the character \u0000 (at byte 6)"),
        (vec!["create", "a", deep], 2, "nested deeper than 64 levels"),
        (vec!["create", "a", "@missing.json"], 2, "cannot be opened"),
        (vec!["create", "a", "@/dev/zero"], 2, "more than 1048576 bytes"),
        (vec!["create", "a", "@."], 2, "cannot read"),
        (vec!["create", ""], 2, "a class needs a name"),
        (vec!["create", "a\nb"], 2, "a class needs a name"),
        (vec!["create", "a", "--queue", ""], 2, "a queue needs a name"),
        (vec!["create", "a", "--at", "yesterday"], 2, "this is not a time"),
        (vec!["create", "a", "--at", "2020-01-01 10:00"], 2, "omit the time to run it at once"),
        (vec!["create", "a", "--after", "-5s"], 2, "a duration cannot be negative"),
        (vec!["create", "a", "--after", "soon"], 2, "this is not a duration"),
        (vec!["create", "a", "--at", "18:00", "--after", "5s"], 2, "cannot be used with"),
        (vec!["create", "a", "--count", "0"], 2, "0 is not in 1..=1000000"),
        (vec!["create", "a", "--count", "-3"], 2, "-3 is not in 1..=1000000"),
        (vec!["create", "a", "--count", "1000001"], 2, "is not in 1..=1000000"),
        (vec!["create", "a", "--priority", "high"], 2, "invalid"),
        (vec!["create", "a", "--unique", ""], 2, "a unique key needs 1 to 500 bytes"),
        (vec!["create", "a", "--unique", "k", "--count", "2"], 2, "cannot be used with"),
        (vec!["create", "a", "--unique-scope", "waiting"], 2, "--unique <KEY>"),
        (vec!["create", "a", "--on-conflict", "replace"], 2, "--unique <KEY>"),
        (
            vec!["create", "a", "--unique", "k", "--unique-scope", "running"],
            2,
            "write waiting, active, or a duration like 10m",
        ),
        (vec!["create", "a", "--unique", "k", "--unique-scope", "0s"], 2, "at least 1 ms"),
        (vec!["create", "a", "--unique", "k", "--unique-scope", "-5s"], 2, "cannot be negative"),
        (vec!["create", "a", "--unique", "k", "--on-conflict", "drop"], 2, "keep, replace"),
        (vec!["tasks", "--status", "wating"], 2, "'waiting'"),
        (vec!["tasks", "--limit", "0"], 2, "0 is not in 1..=10000"),
        (vec!["tasks", "--before", "-1"], 2, "use a whole number from 1"),
        (vec!["show", "abc"], 2, "use a whole number from 1"),
        (vec!["show", "999"], 3, "there is no task 999"),
        (vec!["retry", "999"], 3, "there is no task 999"),
        (vec!["cancel", "999"], 3, "there is no task 999"),
        (vec!["cancel"], 2, "required"),
        (vec!["cancel", "1", "--timeout", "5s"], 2, "--wait"),
        (vec!["cancel", "1", "--wait", "--timeout", "soon"], 2, "this is not a duration"),
        (vec!["logs"], 2, "required"),
        (vec!["logs", "abc"], 2, "use a whole number from 1"),
        (vec!["logs", "999"], 3, "there is no task 999"),
        (vec!["logs", "999", "--follow"], 3, "there is no task 999"),
        (vec!["logs", "1", "--attempt", "0"], 2, "0 is not in 1.."),
        (vec!["logs", "1", "--attempt", "7"], 3, "task 1 has no attempt 7"),
        (vec!["show", "1", "--json", "--follow"], 2, "cannot be used with"),
        (vec!["show", "999", "--follow"], 3, "there is no task 999"),
        (vec!["recover", "missing"], 3, "there is no engine missing"),
        (vec!["taks"], 2, "'tasks'"),
        (vec!["pause", "mail"], 2, "to pause a queue: task-engine queues pause mail"),
        (vec!["resume", "mail"], 2, "to resume a queue: task-engine queues resume mail"),
        (vec!["run"], 2, "to run an engine: task-engine start"),
        (vec!["tasks", "status=bogus"], 2, "waiting, running, stopped (or succeeded), failed"),
        (vec!["schedules", "add", "a", "b"], 2, "--cron EXPRESSION or --every DURATION"),
        (vec!["schedules", "add", "a", "b", "--cron", "0 25 * * *"], 2, "at character 3: hour: 25"),
        (vec!["schedules", "add", "a", "b", "--cron", "0 3 * *"], 2, "needs 5 fields"),
        (vec!["schedules", "add", "a", "b", "--cron", "0 0 30 2 *"], 2, "never fires"),
        (vec!["schedules", "add", "a", "b", "--cron", "@often"], 2, "use @yearly"),
        (vec!["schedules", "add", "a", "b", "--every", "1ms"], 2, "between 100 ms and 366 days"),
        (vec!["schedules", "add", "a", "b", "--every", "soon"], 2, "use a form like 30s"),
        (
            vec!["schedules", "add", "a", "b", "--every", "5s", "--cron", "@daily"],
            2,
            "cannot be used with",
        ),
        (
            vec!["schedules", "add", "a", "b", "--every", "5s", "--time-zone", "Mars"],
            2,
            "unknown time zone \"Mars\"",
        ),
        (
            vec!["schedules", "add", "a", "b", "--every", "5s", "--missed", "some"],
            2,
            "use skip, last, all, or all:N",
        ),
        (vec!["schedules", "add", "a", "b", "--every", "5s", "--missed", "all:0"], 2, "1 to 1000"),
        (
            vec!["schedules", "add", "a", "b", "--every", "5s", "--overlap", "no"],
            2,
            "use allow, skip or wait",
        ),
        (vec!["schedules", "add", "a", "b", "--every", "5s", "--jitter", "2 days"], 2, "jitter"),
        (vec!["schedules", "add", "a", "b", "[1]", "--every", "5s"], 2, "a JSON object is needed"),
        (vec!["schedules", "add", "", "b", "--every", "5s"], 2, "a schedule needs a name"),
        (vec!["schedules", "show", "missing"], 3, "there is no schedule \"missing\""),
        (vec!["schedules", "set", "missing", "--priority", "1"], 3, "there is no schedule"),
        (vec!["schedules", "pause", "missing"], 3, "there is no schedule"),
        (vec!["schedules", "resume", "missing"], 3, "there is no schedule"),
        (vec!["schedules", "run", "missing"], 3, "there is no schedule"),
        (vec!["schedules", "remove", "missing"], 3, "there is no schedule"),
        (vec!["schedules", "next"], 2, "name a schedule, or say --cron"),
        (vec!["schedules", "next", "missing"], 3, "there is no schedule"),
        (vec!["schedules", "next", "--cron", "* * * * 8"], 2, "at character 9: day of week: 8"),
        (vec!["schedules", "next", "--every", "1h", "--after", "soon"], 2, "is not a time"),
        (vec!["schedules", "next", "--every", "1h", "-n", "0"], 2, "0 is not in 1..=1000"),
        (vec!["start", "--instance", ""], 2, "cannot be the name of an engine"),
        (vec!["start", "--queue", "mail=0"], 2, "not a number of workers from 1 to 10000"),
        (vec!["start", "--queue", "mail=x"], 2, "not a number of workers from 1 to 10000"),
        (vec!["start", "--queue", "mail="], 2, "not a number of workers from 1 to 10000"),
        (vec!["start", "--queue", "mail=-2"], 2, "not a number of workers from 1 to 10000"),
        (vec!["start", "--queue", "=5"], 2, "a queue needs a name"),
        (vec!["start", "--queue", ""], 2, "a queue needs a name"),
        (vec!["start", "--queue", "a", "--queue", "a"], 2, "queue \"a\" is named twice"),
        (vec!["start", "--queue", "a=1", "--queue", "a=2"], 2, "queue \"a\" is named twice"),
        (vec!["start", "--queue", "a", "--queue", "a=2"], 2, "queue \"a\" is named twice"),
        (
            vec!["start", "--queue", "default=1", "--workers", "3"],
            2,
            "3 shared workers have no queue",
        ),
        (vec!["start", "--queue", "a=b"], 2, "for a queue named \"a=b\", write a=b=10"),
        (vec!["start", "--workers", "0"], 2, "at least one worker"),
        (vec!["start", "--reserve", "10"], 2, "write PRIORITY=N, like 10=2"),
        (vec!["start", "--reserve", "high=2"], 2, "\"high\" is not a priority"),
        (vec!["start", "--reserve", "10=0"], 2, "not a number of workers from 1 to 10000"),
        (vec!["start", "--reserve", "-1=1", "--reserve", "-1=1"], 2, "name each priority once"),
        (vec!["queues", "pause", ""], 2, "a queue needs a name"),
        (vec!["queues", "pause", "a\nb"], 2, "a queue needs a name"),
        (vec!["queues", "pause", "a", "--reason", ""], 2, "a reason is a text of 1 to 1000 bytes"),
        (vec!["queues", "pause", "a", "--reason", "b\u{7}"], 2, "without control characters"),
        (vec!["queues", "pause"], 2, "required"),
        (vec!["queues", "resume", ""], 2, "a queue needs a name"),
        (vec!["queues", "resume", "mial"], 3, "there is no queue mial"),
        (vec!["queues", "puase", "a"], 2, "'pause'"),
        (vec!["start", "--dead-after", "6s"], 2, "at least two heartbeats"),
        (vec!["start", "--poll", "1h"], 2, "poll must be between"),
        (vec!["start", "--recovery", "maybe"], 2, "auto, manual"),
        (vec!["start", "--retention", "ever"], 2, "or `never`"),
        (vec!["trace"], 2, "required"),
        (vec!["trace", ""], 2, "a value is required"),
        (vec!["trace", "999"], 3, "there is no task and no flow 999"),
        (vec!["trace", "-1"], 3, "there is no task and no flow -1"),
        (vec!["trace", "missing"], 3, "there is no task and no flow missing"),
        (vec!["trace", "1", "--limit", "0"], 2, "0 is not in 1..=100000"),
        (vec!["trace", "1", "--limit", "100001"], 2, "is not in 1..=100000"),
        (vec!["create", "a", "--correlation", ""], 2, "a correlation id is a text of 1 to 200"),
        (vec!["create", "a", "--traceparent", "x"], 2, "invalid traceparent"),
        (vec!["start", "--warn-after", "soon"], 2, "this is not a duration"),
        (vec!["tasks", "--database", "tasks.db"], 2, "write sqlite:tasks.db"),
        (vec!["tasks", "--database", "mysql://u:secret@h/d"], 2, "mysql:// is not a database"),
        (vec!["tasks", "--database", "postgres://u:secret@h:x/d"], 2, "the database URL is wrong"),
        (vec!["tasks", "--database", "sqlite::memory:"], 2, "only `demo` can use it"),
        (vec!["tasks", "--database", "sqlite:missing.db"], 3, "there is no database missing.db"),
        (vec!["create", "a", "--database", "sqlite:no/x.db"], 1, "the folder no does not exist"),
    ]
}

fn refuses_wrong_input(sandbox: &Sandbox) {
    sandbox.ok(&["create", "first"]);
    let before = sandbox.tasks();
    let deep = format!("{}1{}", "[".repeat(10_000), "]".repeat(10_000));
    for (args, code, words) in wrong_inputs(&deep) {
        let finished = sandbox.run(&args);
        let shown: Vec<_> = args.iter().map(|arg| &arg[..arg.len().min(40)]).collect();
        assert_eq!(finished.code, Some(code), "{shown:?}: {finished:?}");
        assert!(finished.err.contains(words), "{shown:?}: {}", finished.err);
        assert!(!finished.err.contains("secret"), "{shown:?}: {}", finished.err);
    }
    let long = vec![b'['; 300 << 20];
    let finished = sandbox.run_with_input(&["create", "a", "-"], &long);
    assert_eq!(finished.code, Some(2));
    assert!(finished.err.contains("more than 1048576 bytes"), "{}", finished.err);
    assert_eq!(sandbox.tasks(), before, "nothing was changed");
    assert!(!sandbox.path("missing.db").exists());
}

#[test]
fn wrong_input_on_sqlite() {
    refuses_wrong_input(&sandbox());
}

#[test]
fn wrong_files_are_refused() {
    let sandbox = sandbox();
    let refused = sandbox.run(&["create", "a", "--schema", "jobs"]);
    assert_eq!(refused.code, Some(2), "{refused:?}");
    assert_eq!(sandbox.run(&["create", "a", "--no-migrate"]).code, Some(3));
    assert_eq!(sandbox.run(&["start", "--no-migrate"]).code, Some(3));
    assert!(!sandbox.path("task-engine.db").exists());
    std::fs::write(sandbox.path("text.db"), "no database at all, but a text of some length")
        .unwrap();
    let text = sandbox.run(&["tasks", "--database", "sqlite:text.db"]);
    assert_eq!(text.code, Some(1));
    assert!(text.err.contains("is not an SQLite database"), "{}", text.err);
}

#[tokio::test(flavor = "multi_thread")]
async fn wrong_input_on_postgresql() {
    let url = TestServer::shared().create_database().await;
    let sandbox = sandbox_on(&url);
    let missing = sandbox.run(&["tasks"]);
    assert_eq!(missing.code, Some(1));
    assert!(missing.err.contains("task-engine migrate"), "{}", missing.err);
    refuses_wrong_input(&sandbox);
    let refused = sandbox.run(&["tasks", "--schema", "no such"]);
    assert_eq!(refused.code, Some(2), "{refused:?}");
    assert_eq!(sandbox.ok(&["create", "a", "--schema", "jobs"]), "1\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn newer_tables_are_left_alone() {
    let url = TestServer::shared().create_database().await;
    let sandbox = sandbox_on(&url);
    sandbox.ok(&["migrate"]);
    let client = connect(&url).await;
    let newer = "INSERT INTO task_engine.migrations (version, name) VALUES (9999, 'later')";
    client.batch_execute(newer).await.expect("a newer version");
    for args in [&["migrate"][..], &["create", "a"], &["start"]] {
        let refused = sandbox.run(args);
        assert_eq!(refused.code, Some(1), "{args:?}: {refused:?}");
        assert!(refused.err.contains("version 9999"), "{args:?}: {}", refused.err);
        assert!(refused.err.contains("upgrade task-engine"), "{args:?}: {}", refused.err);
    }
    assert_eq!(sandbox.tasks(), Vec::<serde_json::Value>::new());
}

/// An engine that may not migrate needs tables that it can work on: older ones, or
/// none, are refused, and newer ones are borne in the middle of an upgrade.
fn checks_tables_without_a_migration(sandbox: &Sandbox, change: impl Fn(&str)) {
    let refused = |words: &str| {
        let refused = sandbox.run(&["start", "--no-migrate"]);
        assert_eq!(refused.code, Some(1), "{refused:?}");
        for words in [words, "run `task-engine migrate`"] {
            assert!(refused.err.contains(words), "{words}: {}", refused.err);
        }
    };
    refused("the schema of Task Engine does not exist");
    sandbox.ok(&["migrate"]);
    change("DELETE FROM migrations WHERE version > 2");
    refused("the schema has version 2, and this program needs version");
    change("INSERT INTO migrations (version, name) VALUES (9999, 'later')");
    sandbox.ok(&["create", "WaitingTask", r#"{"waiting_time": 0}"#, "--no-migrate"]);
    let engine = sandbox.start(&["start", "--no-migrate"]);
    wait_until("the task ends", || sandbox.status("1") == "stopped");
    engine.wait_for_log("the schema is newer than this program");
    engine.signal("TERM");
    assert_eq!(engine.end().code, Some(0));
}

#[test]
fn tables_are_checked_on_sqlite() {
    let sandbox = sandbox();
    let file = rusqlite::Connection::open(sandbox.path("task-engine.db")).unwrap();
    // A file with nothing in it.
    file.execute_batch("PRAGMA user_version = 1").unwrap();
    let of_file = |text: &str| {
        let text = text.replace("migrations", "task_engine_migrations");
        text.replace("(version, name)", "(version, name, applied_at)")
            .replace("'later')", "'later', 0)")
    };
    checks_tables_without_a_migration(&sandbox, |text| file.execute_batch(&of_file(text)).unwrap());
}

#[test]
fn tables_are_checked_on_postgresql() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let url = runtime.block_on(TestServer::shared().create_database());
    let (client, connection) =
        runtime.block_on(tokio_postgres::connect(&url, tokio_postgres::NoTls)).unwrap();
    runtime.spawn(connection);
    checks_tables_without_a_migration(&sandbox_on(&url), |text| {
        let text = text.replace("migrations", "task_engine.migrations");
        runtime.block_on(client.batch_execute(&text)).unwrap();
    });
}

#[test]
fn doctor_reports_unreachable_server() {
    // No server listens on port 1.
    let sandbox = sandbox_on("postgres://u:secret@127.0.0.1:1/d");
    for args in [&["tasks"][..], &["create", "a"], &["start"], &["migrate"]] {
        let refused = sandbox.run(args);
        assert_eq!(refused.code, Some(1), "{args:?}: {refused:?}");
        for words in ["postgres://127.0.0.1:1/d cannot be reached", "Check that the server"] {
            assert!(refused.err.contains(words), "{args:?}: {}", refused.err);
        }
        assert!(!refused.err.contains("secret"), "{args:?}: {}", refused.err);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn missing_database_is_reported() {
    let url = TestServer::shared().url("missing");
    let sandbox = sandbox_on(&url);
    let refused = sandbox.run(&["create", "a"]);
    assert_eq!(refused.code, Some(1), "{refused:?}");
    assert!(refused.err.contains("check user, password and database"), "{}", refused.err);
}

/// Root may write everywhere, so the program runs as another user.
#[test]
fn read_only_database_is_refused() {
    use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
    let sandbox = sandbox();
    sandbox.ok(&["create", "first"]);
    let allow = |path: &std::path::Path, mode| {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    };
    let (file, folder) = (sandbox.path("task-engine.db"), sandbox.path("."));
    let program = sandbox.path("task-engine");
    // By another process: a program that this one has open for writing, in any child that it
    // starts meanwhile, could not be executed.
    let source = env!("CARGO_BIN_EXE_task-engine");
    let copied = std::process::Command::new("cp").arg(source).arg(&program).status().unwrap();
    assert!(copied.success());
    allow(&program, 0o755);
    allow(&file, 0o444);
    allow(&folder, 0o555);
    let is_root = std::fs::metadata("/proc/self").unwrap().uid() == 0;
    let unprivileged = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"];
    let around: Vec<&str> = if is_root { unprivileged.to_vec() } else { vec!["env"] };
    let error = |database: &str| {
        let mut command = std::process::Command::new(around[0]);
        command.args(&around[1..]).arg(&program).args(["create", "second", "--database", database]);
        let output = command.current_dir(&folder).output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        String::from_utf8(output.stderr).unwrap()
    };
    let (there, new) = (error("sqlite:task-engine.db"), error("sqlite:new.db"));
    allow(&folder, 0o755);
    allow(&file, 0o644);
    assert!(there.contains("is read-only"), "{there}");
    let where_not = format!("a file cannot be made in {}", file.parent().unwrap().display());
    assert!(new.contains(&where_not) && new.contains("let this user write there"), "{new}");
    assert_eq!(sandbox.tasks().len(), 1);
}

/// A server that asks for a password and gets the wrong one.
#[test]
fn wrong_password_is_never_shown() {
    let server = TestServer::start();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let url = runtime.block_on(server.create_database());
    runtime.block_on(async {
        let client = connect(&url).await;
        let file: String = client.query_one("SHOW hba_file", &[]).await.unwrap().get(0);
        let rules = "host all guest 127.0.0.1/32 scram-sha-256\nhost all all 127.0.0.1/32 trust\n";
        std::fs::write(file, rules).unwrap();
        let guest = "CREATE ROLE guest LOGIN PASSWORD 'right'; SELECT pg_reload_conf()";
        client.batch_execute(guest).await.unwrap();
    });
    let (_, rest) = url.split_once('@').unwrap();
    let sandbox = sandbox_on(&format!("postgres://guest:wrong-secret@{rest}"));
    let mut refused = sandbox.run(&["tasks"]);
    task_engine_test_harness::wait_until("the server has read its new rules", || {
        refused = sandbox.run(&["tasks"]);
        refused.err.contains("password authentication failed")
    });
    assert_eq!(refused.code, Some(1), "{}", refused.err);
    assert!(refused.err.contains("check user, password and database"), "{}", refused.err);
    assert!(!refused.err.contains("wrong-secret"), "{}", refused.err);
    let none = sandbox_on(&format!("postgres://guest@{rest}")).run(&["tasks"]);
    assert_eq!(none.code, Some(1), "{}", none.err);
    assert!(none.err.contains("The server asks for a password"), "{}", none.err);
}

#[test]
fn port_in_use_is_reported() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let sandbox = sandbox();
    sandbox.ok(&["migrate"]);
    for args in [&["web", &address][..], &["start", "--web", &address]] {
        let refused = sandbox.run(args);
        assert_eq!(refused.code, Some(1), "{args:?}: {refused:?}");
        for words in [&address, "choose another port, like `start --web 9000` or `web 9000`"] {
            assert!(refused.err.contains(words), "{args:?}: {}", refused.err);
        }
    }
}
