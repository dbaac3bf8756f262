//! The rights that the guide grants are enough, and not more than documented.

use std::fs;
use std::path::Path;

use task_engine::postgres::tokio_postgres::{self};
use task_engine_test_harness::{TestServer, connect};
use tokio::runtime::Runtime;

use super::support::sandbox_on;
use task_engine_test_harness::wait_until;

/// The statements of the guide that grant to a role, for a role of another
/// name: roles belong to the server, and it is shared.
fn grants(role: &str, named: &str) -> String {
    let guide = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/production.md");
    let text = fs::read_to_string(guide).unwrap();
    let mut blocks = text.split("```sql\n").skip(1).filter_map(|part| part.split("```").next());
    let grant = format!("GRANT USAGE ON SCHEMA task_engine TO {role};");
    let block = blocks.find(|block| block.contains(&grant)).expect("the rights are in the guide");
    // Here the tables belong to the user who grants.
    let block = block.replace("FOR ROLE tasks_owner ", "").replace(role, named);
    let create = format!("CREATE ROLE {named} LOGIN;\n");
    if block.contains("CREATE ROLE") { block } else { create + &block }
}

async fn execute(url: &str, statements: &str) -> Result<(), tokio_postgres::Error> {
    let client = connect(url).await;
    client.batch_execute(statements).await
}

fn as_user(url: &str, user: &str) -> String {
    let (_, sandbox) = url.split_once('@').expect("a user");
    format!("postgres://{user}@{sandbox}")
}

#[test]
fn engine_runs_with_documented_rights() {
    let runtime = Runtime::new().unwrap();
    let url = runtime.block_on(TestServer::shared().create_database());
    sandbox_on(&url).ok(&["migrate"]);
    let granted = grants("tasks_engine", "granted_engine");
    runtime.block_on(execute(&url, &granted)).expect("the statements of the guide");
    let user = as_user(&url, "granted_engine");

    let sandbox = sandbox_on(&user);
    sandbox.ok(&["create", "WaitingTask", r#"{"waiting_time": 0}"#]);
    sandbox.ok(&["create", "WaitingTask", r#"{"waiting_time": 0}"#, "--unique", "one"]);
    sandbox.ok(&["create", "ReportingTask", r#"{"steps": 2, "step_time": 0}"#]);
    sandbox.ok(&["create", "FailingNotRetryTask"]);
    sandbox.ok(&[
        "schedules",
        "add",
        "s",
        "WaitingTask",
        r#"{"waiting_time": 0}"#,
        "--every",
        "1s",
    ]);
    let words = ["start", "--no-migrate", "--recovery", "auto", "--web", "127.0.0.1:0"];
    let engine = sandbox.start(&words);
    for id in ["1", "2", "3", "5"] {
        wait_until("the task ends", || {
            sandbox.run(&["show", id, "--json"]).out.contains(r#""stopped""#)
        });
    }
    wait_until("the task fails", || sandbox.status("4") == "failed");
    sandbox.ok(&["queues", "pause", "mail"]);
    sandbox.ok(&["retry", "4"]);
    sandbox.ok(&["tokens", "create", "reader", "--role", "viewer"]);
    engine.signal("TERM");
    let ended = engine.end();
    assert_eq!(ended.code, Some(0), "{}", ended.err);
    assert!(!ended.err.contains("permission denied"), "{}", ended.err);
    sandbox.ok(&["prune", "--status", "stopped", "--older-than", "0s", "--yes"]);
    sandbox.ok(&["verify"]);
    let doctor = sandbox.run(&["doctor"]).out;
    assert!(doctor.contains("may not create one (permission denied"), "{doctor}");

    let drop = "DROP TABLE task_engine.created_tasks CASCADE";
    let refused = runtime.block_on(execute(&user, drop)).expect_err("not the owner");
    assert_eq!(refused.code().map(|code| code.code()), Some("42501"));
}

#[test]
fn application_creates_with_documented_rights() {
    let runtime = Runtime::new().unwrap();
    let url = runtime.block_on(TestServer::shared().create_database());
    let sandbox = sandbox_on(&url);
    sandbox.ok(&["migrate"]);
    let granted = grants("shop", "granted_shop");
    runtime.block_on(execute(&url, &granted)).expect("the statements of the guide");
    let user = as_user(&url, "granted_shop");
    let create = r"SELECT task_engine.create_task('WaitingTask', '{}', after => '1 hour')";
    runtime.block_on(execute(&user, create)).expect("it may create");
    // Limits of some class change nothing for it.
    sandbox.ok(&["limits", "set", "one", "--class", "WaitingTask", "--max", "1"]);
    let create = "SELECT task_engine.create_task('WaitingTask', '{}')";
    runtime.block_on(execute(&user, create)).expect("it may create");
    assert_eq!(sandbox.tasks().len(), 2);
    for beyond in [
        "DELETE FROM task_engine.waiting_tasks",
        "SELECT task_parameters FROM task_engine.created_tasks",
        "TABLE task_engine.ended_executions",
        "TABLE task_engine.tasks",
    ] {
        let refused = runtime.block_on(execute(&user, beyond)).expect_err(beyond);
        assert_eq!(refused.code().map(|code| code.code()), Some("42501"), "{beyond}");
    }
}

/// A migrated database, and the URL of a user with the rights of the guide.
fn granted(runtime: &Runtime, named: &str) -> (String, String) {
    let url = runtime.block_on(TestServer::shared().create_database());
    sandbox_on(&url).ok(&["migrate"]);
    let granted = grants("tasks_engine", named);
    runtime.block_on(execute(&url, &granted)).expect("the statements of the guide");
    let user = as_user(&url, named);
    (url, user)
}

#[test]
fn start_names_missing_rights() {
    let runtime = Runtime::new().unwrap();
    let (url, user) = granted(&runtime, "poor_engine");
    let sandbox = sandbox_on(&user);
    for (revoke, grant) in [
        (
            "REVOKE INSERT, DELETE ON task_engine.ended_executions FROM poor_engine",
            "GRANT INSERT, DELETE ON task_engine.ended_executions TO poor_engine;",
        ),
        (
            "REVOKE SELECT ON task_engine.rollups FROM poor_engine",
            "GRANT SELECT ON task_engine.rollups TO poor_engine;",
        ),
        (
            "REVOKE INSERT ON task_engine.steps FROM poor_engine",
            "GRANT INSERT ON task_engine.steps TO poor_engine;",
        ),
        (
            "REVOKE UPDATE ON task_engine.suspended_tasks FROM poor_engine",
            "GRANT UPDATE ON task_engine.suspended_tasks TO poor_engine;",
        ),
    ] {
        runtime.block_on(execute(&url, revoke)).expect("revoked");
        let refused = sandbox.run(&["start", "--no-migrate"]);
        assert_eq!(refused.code, Some(1), "{refused:?}");
        assert!(refused.err.contains("user poor_engine lacks rights"), "{}", refused.err);
        assert!(refused.err.contains(grant), "{}", refused.err);
    }
    let revoke = "REVOKE USAGE ON SCHEMA task_engine FROM poor_engine";
    runtime.block_on(execute(&url, revoke)).expect("revoked");
    let refused = sandbox.run(&["start", "--no-migrate"]);
    assert_eq!(refused.code, Some(1), "{refused:?}");
    assert!(refused.err.contains("GRANT USAGE ON SCHEMA task_engine"), "{}", refused.err);
}

/// One signal is enough, also without a time limit for the stop.
#[test]
fn engine_that_may_not_record_ends() {
    let runtime = Runtime::new().unwrap();
    let (url, user) = granted(&runtime, "robbed_engine");
    let sandbox = sandbox_on(&user);
    let (engine, witness) = sandbox.start_on_witness(1000, &["start", "--no-migrate"]);
    let revoke = "REVOKE INSERT ON task_engine.ended_executions FROM robbed_engine";
    runtime.block_on(execute(&url, revoke)).expect("revoked");
    engine.wait_for_log("1 results are kept until the store takes them");
    engine.signal("TERM");
    let ended = engine.end();
    assert_eq!(ended.code, Some(1), "{}", ended.err);
    assert_eq!(witness.events(), ["begin", "end"]);
    for part in ["1 results could not be recorded", "task-engine recover"] {
        assert!(ended.err.contains(part), "{part}: {}", ended.err);
    }
}
