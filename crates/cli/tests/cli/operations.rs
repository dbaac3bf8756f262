//! Every operation does the same by command, by page and by HTTP API: it selects the same tasks,
//! has the same effect, and leaves the same entries in the audit.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;

use rusqlite::Connection;
use serde_json::{Value, json};

use super::support::{sandbox, sandbox_on};
use task_engine_test_harness::{RunningProgram, Sandbox, TestServer, wait_until};

const DATABASE: &str = "task-engine.db";

/// One operation in its three forms. A form or a command that does not exist is empty.
struct Case {
    command: &'static [&'static str],
    form: (&'static str, &'static [(&'static str, &'static str)]),
    api: (&'static str, &'static str, Value),
    /// The counts of its outcome; `None` if it is refused, and leaves no entry.
    counts: Option<Value>,
}

#[derive(Clone, Copy, Debug)]
enum Path {
    Command,
    Form,
    Api,
}

/// The state after an operation, for one path.
#[derive(Debug, PartialEq)]
struct Trace {
    /// The action, target, reason, outcome and detail of each new entry.
    audit: Vec<Value>,
    tasks: Vec<Value>,
    /// The definition of each schedule, and whether it is paused.
    schedules: Vec<Value>,
    /// The paused queues and the reasons.
    paused: Vec<Value>,
}

fn cases() -> Vec<Case> {
    let schedule = [
        ("name", "tidy"),
        ("rule", "every 1h"),
        ("time_zone", "UTC"),
        ("class", "a"),
        ("parameters", "{}"),
        ("queue", "default"),
        ("priority", "0"),
        ("missed", "last"),
        ("overlap", "allow"),
        ("jitter", "0s"),
    ];
    let set = schedule
        .map(|(name, value)| if name == "rule" { (name, "every 2h") } else { (name, value) });
    let (schedule, set) = (&*Vec::leak(schedule.to_vec()), &*Vec::leak(set.to_vec()));
    let filter = |text: &str| json!({ "filter": text });
    vec![
        // Without a status: failed tasks, not the cancelled one.
        Case {
            command: &["retry", "id>0", "--yes"],
            form: ("/operations/retry", &[("filter", "id>0")]),
            api: ("POST", "/tasks/retry", filter("id>0")),
            counts: Some(json!({"retried": 2})),
        },
        Case {
            command: &["retry", "status=cancelled,stopped", "--yes"],
            form: ("/operations/retry", &[("filter", "status=cancelled,stopped")]),
            api: ("POST", "/tasks/retry", filter("status=cancelled,stopped")),
            counts: Some(json!({"retried": 1, "skipped_succeeded": 1})),
        },
        Case {
            command: &["retry", "5", "6", "999"],
            form: ("/operations/retry", &[("ids", "5"), ("ids", "6"), ("ids", "999")]),
            api: ("POST", "/tasks/retry", json!({"ids": [5, 6, 999]})),
            counts: Some(json!({"advanced": 1, "skipped_running": 1, "not_found": 1})),
        },
        Case {
            command: &["retry", "999"],
            form: ("/operations/retry", &[("ids", "999")]),
            api: ("POST", "/tasks/999/retry", json!({})),
            counts: None,
        },
        Case {
            command: &["edit", "2", "--priority", "7"],
            form: ("/operations/edit", &[("id", "2"), ("priority", "7")]),
            api: ("PATCH", "/tasks/2", json!({"priority": 7})),
            counts: Some(json!({"changed": 1})),
        },
        Case {
            command: &["edit", "1", "--priority", "7"],
            form: ("/operations/edit", &[("id", "1"), ("priority", "7")]),
            api: ("PATCH", "/tasks/1", json!({"priority": 7})),
            counts: None,
        },
        // Waiting and running ones.
        Case {
            command: &["cancel", "id>0", "--yes"],
            form: ("/operations/cancel", &[("filter", "id>0")]),
            api: ("POST", "/tasks/cancel", filter("id>0")),
            counts: Some(json!({"cancelled": 4, "cancel_requested": 1})),
        },
        Case {
            command: &["cancel", "class=none", "--yes"],
            form: ("/operations/cancel", &[("filter", "class=none")]),
            api: ("POST", "/tasks/cancel", filter("class=none")),
            counts: Some(json!({})),
        },
        // Ended ones, not the running one.
        Case {
            command: &["rerun", "id>0", "--yes"],
            form: ("/operations/rerun", &[("filter", "id>0")]),
            api: ("POST", "/tasks/rerun", filter("id>0")),
            counts: Some(json!({"rerun": 5})),
        },
        Case {
            command: &["delete", "6", "7", "--yes"],
            form: ("/operations/delete", &[("ids", "6"), ("ids", "7")]),
            api: ("POST", "/tasks/delete", json!({"ids": [6, 7]})),
            counts: Some(json!({"skipped_running": 1, "skipped_waiting": 1})),
        },
        Case {
            command: &["recover", "web-1"],
            form: ("/operations/recover", &[("name", "web-1")]),
            api: ("POST", "/instances/web-1/recover", json!({})),
            counts: Some(json!({"declared_lost": 1, "recovered_cancelled": 1})),
        },
        // After recovery, when the dead engine holds no claim on them.
        Case {
            command: &["delete", "id<=4", "--yes"],
            form: ("/operations/delete", &[("filter", "id<=4")]),
            api: ("POST", "/tasks/delete", filter("id<=4")),
            counts: Some(json!({"deleted": 4})),
        },
        Case {
            command: &["recover", "ghost"],
            form: ("/operations/recover", &[("name", "ghost")]),
            api: ("POST", "/instances/ghost/recover", json!({})),
            counts: None,
        },
        Case {
            command: &["queues", "pause", "mail", "--reason", "no ink"],
            form: ("/operations/pause-queue", &[("name", "mail"), ("reason", "no ink")]),
            api: ("POST", "/queues/mail/pause", json!({"reason": "no ink"})),
            counts: Some(json!({"paused": 1})),
        },
        Case {
            command: &["queues", "resume", "mail"],
            form: ("/operations/resume-queue", &[("name", "mail")]),
            api: ("POST", "/queues/mail/resume", json!({})),
            counts: Some(json!({"resumed": 1})),
        },
        Case {
            command: &["queues", "resume", "mial"],
            form: ("/operations/resume-queue", &[("name", "mial")]),
            api: ("POST", "/queues/mial/resume", json!({})),
            counts: None,
        },
        Case {
            command: &["schedules", "add", "tidy", "a", "--every", "1h"],
            form: ("/schedules/new", schedule),
            api: ("POST", "/schedules", json!({"name": "tidy", "rule": "every 1h", "class": "a"})),
            counts: Some(json!({"added": 1})),
        },
        Case {
            command: &["schedules", "set", "tidy", "--every", "2h"],
            form: ("/schedules/edit?name=tidy", set),
            api: ("PUT", "/schedules/tidy", json!({"rule": "every 2h", "class": "a"})),
            counts: Some(json!({"changed": 1})),
        },
        Case {
            command: &["schedules", "pause", "tidy", "--reason", "storm"],
            form: ("/operations/pause-schedule", &[("name", "tidy"), ("reason", "storm")]),
            api: ("POST", "/schedules/tidy/pause", json!({"reason": "storm"})),
            counts: Some(json!({"paused": 1})),
        },
        Case {
            command: &["schedules", "resume", "tidy"],
            form: ("/operations/resume-schedule", &[("name", "tidy")]),
            api: ("POST", "/schedules/tidy/resume", json!({})),
            counts: Some(json!({"resumed": 1})),
        },
        Case {
            command: &["schedules", "run", "tidy"],
            form: ("/operations/run-schedule", &[("name", "tidy")]),
            api: ("POST", "/schedules/tidy/run", json!({})),
            counts: Some(json!({"created": 1})),
        },
        Case {
            command: &["schedules", "remove", "tidy"],
            form: ("/operations/remove-schedule", &[("name", "tidy")]),
            api: ("DELETE", "/schedules/tidy", Value::Null),
            counts: Some(json!({"removed": 1})),
        },
        Case {
            command: &["schedules", "pause", "none"],
            form: ("/operations/pause-schedule", &[("name", "none")]),
            api: ("POST", "/schedules/none/pause", json!({})),
            counts: None,
        },
        // Pages create no tokens.
        Case {
            command: &["tokens", "create", "ci", "--role", "viewer"],
            form: ("", &[]),
            api: ("POST", "/tokens", json!({"name": "ci", "role": "viewer"})),
            counts: Some(json!({"added": 1})),
        },
        Case {
            command: &["tokens", "revoke", "ci"],
            form: ("/operations/revoke-token", &[("name", "ci")]),
            api: ("DELETE", "/tokens/ci", Value::Null),
            counts: Some(json!({"revoked": 1})),
        },
    ]
}

/// 1 has succeeded, 2 and 3 have failed, 4 is cancelled, 5 waits, 6 runs in a dead engine.
fn starting_state(sandbox: Sandbox) -> Sandbox {
    sandbox.ok(&["create", "WaitingTask", r#"{"waiting_time": 0}"#]);
    sandbox.ok(&["create", "FailingNotRetryTask", "--count", "2"]);
    sandbox.ok(&["create", "a", "--after", "1h", "--count", "2"]);
    sandbox.ok(&["cancel", "4"]);
    let engine = sandbox.start(&["start", "--instance", "web-1"]);
    wait_until("the tasks have run", || {
        ["1", "2", "3"].map(|id| sandbox.status(id)) == ["stopped", "failed", "failed"]
    });
    // Alone in its claim.
    sandbox.ok(&["create", "WaitingTask", r#"{"waiting_time": 600}"#]);
    wait_until("the last one runs", || sandbox.status("6") == "running");
    engine.signal("KILL");
    engine.end();
    sandbox
}

/// The same database in another folder.
fn copied(from: &Sandbox) -> Sandbox {
    let sandbox = sandbox();
    for suffix in ["", "-wal"] {
        let name = format!("{DATABASE}{suffix}");
        if from.path(&name).exists() {
            fs::copy(from.path(&name), sandbox.path(&name)).expect("a copy");
        }
    }
    sandbox
}

struct Site<'a> {
    sandbox: &'a Sandbox,
    server: Option<(RunningProgram, String)>,
}

impl<'a> Site<'a> {
    fn new(sandbox: &'a Sandbox, path: Path) -> Self {
        let server = match path {
            Path::Command => None,
            Path::Form | Path::Api => {
                let server = sandbox.start(&["web", "127.0.0.1:0"]);
                server.wait_for_log("Dashboard: ");
                let url = server.err();
                let url = url.split("Dashboard: http://").nth(1).expect("an address");
                let host = url.split(['/', '\n', ' ']).next().expect("an address").to_owned();
                Some((server, host))
            }
        };
        Self { sandbox, server }
    }

    /// Performs it. True if it was not refused.
    fn perform(&self, path: Path, case: &Case) -> bool {
        match path {
            Path::Command => {
                let code = self.sandbox.run(case.command).code;
                matches!(code, Some(0)) || case.counts.is_some()
            }
            Path::Form if case.form.0.is_empty() => self.perform(Path::Command, case),
            Path::Form => {
                let pairs = case.form.1.iter().map(|(name, value)| {
                    format!("{name}={}", value.replace('>', "%3E").replace('<', "%3C"))
                });
                let body = pairs.collect::<Vec<_>>().join("&").replace(' ', "+");
                let kind = "application/x-www-form-urlencoded";
                self.send("POST", case.form.0, kind, &body) == 303
            }
            Path::Api => {
                let (method, path, body) = &case.api;
                let body = if body.is_null() { String::new() } else { body.to_string() };
                let status =
                    self.send(method, &format!("/api/v1{path}"), "application/json", &body);
                (200..300).contains(&status)
            }
        }
    }

    fn send(&self, method: &str, path: &str, kind: &str, body: &str) -> u16 {
        let (_, host) = self.server.as_ref().expect("a server");
        let mut stream = TcpStream::connect(host).expect("a connection");
        write!(
            stream,
            "{method} {path} HTTP/1.1\r\nhost: {host}\r\norigin: http://{host}\r\nconnection: close\r\ncontent-type: {kind}\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        )
        .expect("a request");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("an answer");
        let status = answer.split(' ').nth(1).and_then(|status| status.parse().ok());
        status.unwrap_or_else(|| panic!("{method} {path}: {answer}"))
    }
}

fn lines(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

/// These fields of each row. A field that is missing is an error: it would compare nothing.
fn only(rows: &[Value], keys: &[&str]) -> Vec<Value> {
    let field = |row: &Value, key: &str| {
        row.get(key).cloned().unwrap_or_else(|| panic!("no {key} in {row}"))
    };
    rows.iter().map(|row| keys.iter().map(|key| field(row, key)).collect()).collect()
}

/// As [`only`], and no field is null.
fn values(rows: &[Value], keys: &[&str]) -> Vec<Value> {
    let rows = only(rows, keys);
    for row in &rows {
        let fields = row.as_array().expect("a list");
        assert!(!fields.contains(&Value::Null), "{keys:?}: {row}");
    }
    rows
}

fn trace(sandbox: &Sandbox, audited: usize) -> Trace {
    let mut audit = lines(&sandbox.ok(&["audit", "--json", "--limit", "1000"]));
    audit.reverse();
    let audit = only(&audit[audited..], &["action", "target", "reason", "outcome", "detail"]);
    let definition = |row: &Value| {
        let mut row = row.clone();
        row["definition"]["name"] = row["name"].clone();
        row["definition"]["is_paused"] = (!row["paused"].is_null()).into();
        row["definition"].take()
    };
    let schedules = lines(&sandbox.ok(&["schedules", "list", "--json"]));
    let schedules: Vec<_> = schedules.iter().map(definition).collect();
    let queues = lines(&sandbox.ok(&["queues", "list", "--json"]));
    let paused = queues
        .iter()
        .filter(|queue| !queue["paused"].is_null())
        .map(|queue| json!({"name": queue["name"], "reason": queue["paused"]["reason"]}));
    let fields = [
        "name",
        "is_paused",
        "rule",
        "time_zone",
        "class",
        "parameters",
        "queue",
        "priority",
        "missed",
        "overlap",
        "jitter_ms",
    ];
    Trace {
        audit,
        tasks: values(&sandbox.tasks(), &["id", "status", "priority", "queue", "class"]),
        schedules: values(&schedules, &fields),
        paused: values(&paused.collect::<Vec<_>>(), &["name", "reason"]),
    }
}

#[test]
fn all_paths_do_the_same_on_sqlite() {
    let start = starting_state(sandbox());
    all_paths_do_the_same(&[copied(&start), copied(&start), copied(&start)]);
}

#[tokio::test(flavor = "multi_thread")]
async fn all_paths_do_the_same_on_postgresql() {
    let server = TestServer::shared();
    let urls = [
        server.create_database().await,
        server.create_database().await,
        server.create_database().await,
    ];
    let test = move || {
        all_paths_do_the_same(&urls.map(|url| starting_state(sandbox_on(&url))));
    };
    tokio::task::spawn_blocking(test).await.expect("the test");
}

fn all_paths_do_the_same(sandboxes: &[Sandbox; 3]) {
    let paths = [Path::Command, Path::Form, Path::Api];
    let sites: Vec<_> =
        sandboxes.iter().zip(paths).map(|(sandbox, path)| Site::new(sandbox, path)).collect();
    let mut audited = sandboxes.each_ref().map(|sandbox| trace(sandbox, 0).audit.len());
    for case in cases() {
        let mut traces = Vec::new();
        for (n, (site, path)) in sites.iter().zip(paths).enumerate() {
            let accepted = site.perform(path, &case);
            assert_eq!(accepted, case.counts.is_some(), "{path:?} {:?}", case.command);
            let trace = trace(site.sandbox, audited[n]);
            audited[n] += trace.audit.len();
            traces.push(trace);
        }
        let [command, form, api] = &traces[..] else { unreachable!("three paths") };
        assert_eq!(command, form, "page: {:?}", case.command);
        assert_eq!(command, api, "API: {:?}", case.command);
        match &case.counts {
            None => assert_eq!(command.audit, Vec::<Value>::new(), "{:?}", case.command),
            Some(counts) => {
                assert_eq!(command.audit.len(), 2, "{:?}: {:#?}", case.command, command.audit);
                assert_eq!(command.audit[0][3], "started");
                assert_eq!(command.audit[1][3], "done");
                assert_eq!(command.audit[1][4]["counts"], *counts, "{:?}", case.command);
            }
        }
    }
}

/// The database refuses the second of three batches.
#[test]
fn half_way_failure_keeps_its_counts() {
    let start = sandbox();
    start.ok(&["create", "a", "--count", "450", "--after", "1h"]);
    let database = Connection::open(start.path(DATABASE)).expect("the database");
    let trigger = "CREATE TRIGGER refuse BEFORE DELETE ON task_engine_waiting_tasks \
        WHEN OLD.task_id = 60 BEGIN SELECT RAISE(ABORT, 'refused by a test'); END";
    database.execute_batch(trigger).expect("a trigger");
    drop(database);
    let case = Case {
        command: &["cancel", "class=a", "--yes"],
        form: ("/operations/cancel", &[("filter", "class=a")]),
        api: ("POST", "/tasks/cancel", json!({"filter": "class=a"})),
        counts: None,
    };
    for path in [Path::Command, Path::Form, Path::Api] {
        let sandbox = copied(&start);
        let site = Site::new(&sandbox, path);
        assert!(!site.perform(path, &case), "{path:?}");
        let trace = trace(&sandbox, 0);
        let cancelled = trace.tasks.iter().filter(|task| task[1] == "cancelled").count();
        assert_eq!(cancelled, 200, "{path:?}: one batch was done");
        assert_eq!(trace.audit.len(), 2, "{path:?}: {:#?}", trace.audit);
        assert_eq!(trace.audit[1][3], "failed", "{path:?}");
        let detail = &trace.audit[1][4];
        assert_eq!(detail["counts"], json!({"cancelled": 200}), "{path:?}: {detail}");
        let message = detail["message"].as_str().expect("a message");
        assert!(message.contains("after 200 of 450"), "{path:?}: {message}");
    }
}
