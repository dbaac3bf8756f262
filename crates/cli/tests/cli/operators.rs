//! Tokens and the audit, by commands.

use serde_json::{Value, json};
use task_engine::postgres::PgStore;
use task_engine::sqlite::SqliteStore;
use task_engine::{Json, Store};
use task_engine_store::audit::{AuditOutcome, NewAuditEntry};
use task_engine_store::token::TokenSecret;
use task_engine_test_harness::TestServer;

use super::support::{sandbox, sandbox_on};
use task_engine_test_harness::Sandbox;

fn lines(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

async fn tokens_come_and_go(sandbox: &Sandbox, store: &dyn Store) {
    let nothing = sandbox.run(&["tokens", "list"]);
    assert_eq!((nothing.code, nothing.out.as_str()), (Some(0), ""));
    assert!(nothing.err.contains("tokens create"), "{}", nothing.err);

    let made =
        sandbox.run(&["tokens", "create", "ada", "--role", "operator", "--expires", "90days"]);
    assert_eq!(made.code, Some(0), "{}", made.err);
    let token = made.out.trim_end();
    let secret: TokenSecret = token.parse().expect("nothing but the token");
    assert!(!made.err.contains(&token[3..]), "{}", made.err);
    for words in ["ada", "operator", "expires in 90 days", "not shown again"] {
        assert!(made.err.contains(words), "{words}: {}", made.err);
    }
    let row = store.token_by_hash(&secret.hash()).await.unwrap().expect("it is good");
    assert_eq!((row.name.as_str(), row.role.as_str()), ("ada", "operator"));

    let again = sandbox.run(&["tokens", "create", "ada", "--role", "viewer"]);
    assert_eq!((again.code, again.out.as_str()), (Some(4), ""));
    assert!(again.err.contains("tokens revoke ada"), "{}", again.err);
    sandbox.ok(&["tokens", "create", "a\u{202e}b", "--role", "viewer"]);
    let listed = sandbox.ok(&["tokens", "list"]);
    assert!(listed.contains(r"a\u{202e}b") && listed.contains("never"), "{listed}");
    let ada = listed.lines().find(|line| line.starts_with("ada ")).expect("ada is listed");
    assert!(ada.contains("operator") && ada.contains("expires in "), "{listed}");
    let json = sandbox.ok(&["tokens", "list", "--json"]);
    assert!(!json.contains(&token[3..]) && !json.contains("hash"), "{json}");
    let rows = lines(&json);
    assert_eq!((&rows[0]["role"], &rows[1]["name"]), (&json!("viewer"), &json!("ada")));
    assert_eq!(rows[0]["expires_at"], Value::Null);

    assert_eq!(sandbox.ok(&["tokens", "revoke", "ada"]), "token ada was revoked\n");
    assert_eq!(store.token_by_hash(&secret.hash()).await.unwrap(), None);
    let again = sandbox.run(&["tokens", "revoke", "ada"]);
    assert_eq!((again.code, again.out.as_str()), (Some(0), ""));
    assert!(again.err.contains("was revoked before"), "{}", again.err);
    assert_eq!(sandbox.run(&["tokens", "revoke", "missing"]).code, Some(3));
    sandbox.ok(&["tokens", "create", "ada", "--role", "admin"]);
}

async fn audit_is_shown(sandbox: &Sandbox, store: &dyn Store) {
    let nothing = sandbox.run(&["audit"]);
    assert_eq!((nothing.code, nothing.out.as_str()), (Some(0), ""));
    assert!(nothing.err.contains("No operations are recorded"), "{}", nothing.err);
    let detail = Json::parse(r#"{"matched": 3}"#).unwrap();
    let why = Some("bad \u{202e}deploy".to_owned());
    let started =
        NewAuditEntry::started("ada", "tasks.retry", "status=failed", why, detail).unwrap();
    let id = store.audit(&started).await.unwrap();
    let done = started.ended(id, AuditOutcome::Done, Json::parse(r#"{"retried": 3}"#).unwrap());
    store.audit(&done).await.unwrap();
    let lost = NewAuditEntry::started("eve", "queues.pause", "mail", None, Json::empty_object());
    store.audit(&lost.unwrap()).await.unwrap();

    let shown = sandbox.ok(&["audit"]);
    let rows: Vec<&str> = shown.lines().collect();
    assert_eq!(rows.len(), 3, "the second entry includes the first: {shown}");
    assert!(rows[1].contains("eve") && rows[1].contains("started, no outcome"), "{shown}");
    for words in ["ada", "tasks.retry", "status=failed", "done", "retried", r"bad \u{202e}deploy"] {
        assert!(rows[2].contains(words), "{words}: {shown}");
    }
    let rows = lines(&sandbox.ok(&["audit", "--json"]));
    let outcomes: Vec<&Value> = rows.iter().map(|row| &row["outcome"]).collect();
    assert_eq!(outcomes, ["started", "done", "started"]);
    assert_eq!((&rows[1]["of"], &rows[1]["detail"]["retried"]), (&json!(id), &json!(3)));
    let page = sandbox.run(&["audit", "--limit", "1"]);
    assert!(page.err.contains("audit --limit 1 --before 3"), "{}", page.err);
    for (filter, number) in [
        (&["--actor", "ADA", "--action", "tasks", "--since", "1h"][..], 2),
        (&["--actor", "bob"], 0),
        (&["--until", "1h"], 0),
        (&["--task", "17"], 0),
    ] {
        let found = sandbox.ok(&[&["audit", "--json"][..], filter].concat());
        assert_eq!(found.lines().count(), number, "{filter:?}: {found}");
    }
    let young = sandbox.run(&["prune", "--audit", "--older-than", "1day", "--yes"]);
    assert_eq!(young.code, Some(2), "{young:?}");
    assert!(young.err.contains("at least 90 days"), "{}", young.err);
    let rest = lines(&sandbox.ok(&["audit", "--json", "--before", "2"]));
    assert_eq!((rest.len(), &rest[0]["id"]), (1, &json!(1)));
}

async fn commands_are_audited(sandbox: &Sandbox) {
    let traces = || {
        let rows = lines(&sandbox.ok(&["audit", "--json", "--limit", "1000"]));
        let of_commands = rows.into_iter().rev().filter(|row| {
            let actor = row["actor"].as_str().unwrap();
            actor.starts_with("terminal:") && actor.contains('@')
        });
        of_commands.collect::<Vec<_>>()
    };
    let before = traces().len();
    assert!(before > 0, "tokens were made and revoked");
    let id = sandbox.ok(&["create", "WaitingTask", "--after", "1h"]).trim().to_owned();
    sandbox.ok(&["cancel", &id, "--dry-run"]);
    assert_eq!(traces().len(), before, "nothing was changed");
    let task = format!("task {id}");
    let expected = [
        (&["edit", &id, "--priority", "5"][..], 0, "tasks.edit", task.as_str(), "changed"),
        (&["cancel", &id], 0, "tasks.cancel", &task, "cancelled"),
        (&["retry", &id], 0, "tasks.retry", &task, "retried"),
        (&["cancel", "class=WaitingTask", "--yes"], 0, "tasks.cancel", "class=WaitingTask", ""),
        (&["delete", &id, "--yes"], 0, "tasks.delete", &task, "deleted"),
        (&["prune", "--status", "failed", "--older-than", "1h", "--yes"], 0, "tasks.prune", "", ""),
        (&["queues", "pause", "mail", "--reason", "no ink"], 0, "queues.pause", "mail", "paused"),
        (&["queues", "resume", "mail"], 0, "queues.resume", "mail", "resumed"),
        (
            &["schedules", "add", "tidy", "WaitingTask", "--every", "1h"],
            0,
            "schedules.add",
            "tidy",
            "added",
        ),
        (&["schedules", "set", "tidy", "--every", "2h"], 0, "schedules.set", "tidy", "changed"),
        (&["schedules", "pause", "tidy"], 0, "schedules.pause", "tidy", "paused"),
        (&["schedules", "resume", "tidy"], 0, "schedules.resume", "tidy", "resumed"),
        (&["schedules", "run", "tidy"], 0, "schedules.run", "tidy", "created"),
        (&["schedules", "remove", "tidy"], 0, "schedules.remove", "tidy", "removed"),
    ];
    for (args, code, ..) in &expected {
        assert_eq!(sandbox.run(args).code, Some(*code), "{args:?}");
    }
    // Refused before anything is changed: no entry.
    for (args, code) in [(&["delete", &id, "--yes"][..], 3), (&["recover", "ghost"], 3)] {
        assert_eq!(sandbox.run(args).code, Some(code), "{args:?}");
    }
    let traces = &traces()[before..];
    assert_eq!(traces.len(), 2 * expected.len(), "{traces:#?}");
    for (both, (args, _, action, target, became)) in traces.chunks(2).zip(expected) {
        let (started, ended) = (&both[0], &both[1]);
        assert_eq!(
            (&started["outcome"], &ended["of"]),
            (&json!("started"), &started["id"]),
            "{args:?}"
        );
        assert_eq!(ended["outcome"], "done", "{ended}");
        assert_eq!(ended["action"], action);
        assert!(ended["target"].as_str().unwrap().starts_with(target), "{ended}");
        assert!(ended["detail"].to_string().contains(became), "{ended}");
    }
    assert_eq!(traces[2 * 6]["reason"], "no ink");
}

#[tokio::test(flavor = "multi_thread")]
async fn operators_on_sqlite() {
    let sandbox = sandbox();
    sandbox.ok(&["migrate"]);
    let store = SqliteStore::open(sandbox.path("task-engine.db")).unwrap();
    audit_is_shown(&sandbox, &store).await;
    tokens_come_and_go(&sandbox, &store).await;
    commands_are_audited(&sandbox).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn operators_on_postgresql() {
    let url = TestServer::shared().create_database().await;
    let sandbox = sandbox_on(&url);
    sandbox.ok(&["migrate"]);
    let store = PgStore::connect(&url).await.unwrap();
    audit_is_shown(&sandbox, &store).await;
    tokens_come_and_go(&sandbox, &store).await;
    commands_are_audited(&sandbox).await;
}

#[test]
fn invalid_operator_input_is_refused() {
    let sandbox = sandbox();
    sandbox.ok(&["migrate"]);
    let long = "x".repeat(201);
    for (args, words) in [
        (&["tokens", "create", "a", "--role", "root"][..], "viewer, operator, admin"),
        (&["tokens", "create", "a"], "--role"),
        (&["tokens", "create", "", "--role", "viewer"], "1 to 200 bytes"),
        (&["tokens", "create", "a\nb", "--role", "viewer"], "control characters"),
        (&["tokens", "create", "admin", "--role", "viewer"], "uses that for users without a token"),
        (&["tokens", "create", &long, "--role", "viewer"], "1 to 200 bytes"),
        (&["tokens", "create", "a", "--role", "viewer", "--expires", "0"], "expires after"),
        (&["tokens", "create", "a", "--role", "viewer", "--expires", "-1d"], "negative"),
        (&["tokens", "create", "a", "--role", "viewer", "--expires", "soon"], "not a duration"),
        (&["audit", "--limit", "0"], "1..=100000"),
        (&["audit", "--before", "x"], "--before"),
    ] {
        let finished = sandbox.run(args);
        assert_eq!((finished.code, finished.out.as_str()), (Some(2), ""), "{args:?}");
        assert!(finished.err.contains(words), "{args:?}: {}", finished.err);
    }
    assert_eq!(sandbox.ok(&["tokens", "list", "--json"]), "");
}
