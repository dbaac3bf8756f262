//! `verify` finds what is wrong with the rows of durable tasks, of flows and of limits.

use std::sync::Arc;
use std::time::Duration;

use task_engine_conformance::fixture::{Fixture, WORK, new_task};
use task_engine_core::dependency::Flow;
use task_engine_core::limit::{Limit, LimitOptions};
use task_engine_core::task::TaskId;
use task_engine_postgres::PgStore;
use task_engine_store::check::ViolationKind;
use task_engine_test_harness::{TestServer, connect};
use tokio_postgres::Client;

/// Task 1 is suspended and watches task 2, which is held.
const SUSPENDED: &str = "
    INSERT INTO task_engine.ended_executions
      (task_id, attempt, retry_number, stopped_at, error, retry_at)
      VALUES (1, 1, 0, now(), '{}', now());
    UPDATE task_engine.waiting_tasks SET attempt = 2;
    INSERT INTO task_engine.task_dependencies VALUES (1, 2), (1, 77);
    INSERT INTO task_engine.suspended_tasks VALUES (1, 1, '{paid}', 2);
    UPDATE task_engine.instances SET started_at = now() - interval '1 hour';";

struct Fresh {
    fixture: Fixture,
    client: Client,
}

impl Fresh {
    async fn empty() -> Self {
        let url = TestServer::shared().create_database().await;
        let store = PgStore::connect(&url).await.unwrap();
        store.migrate().await.unwrap();
        let client = connect(&url).await;
        Self { fixture: Fixture { store: Arc::new(store) }, client }
    }

    async fn new() -> Self {
        let fresh = Self::empty().await;
        fresh.fixture.create(new_task(WORK).after(Duration::from_secs(3600))).await;
        fresh.fixture.create(new_task(WORK)).await;
        fresh.fixture.engine("a").await.claim_one().await;
        fresh.client.batch_execute(SUSPENDED).await.unwrap();
        assert_eq!(fresh.violations().await, []);
        fresh
    }

    /// Task 3 needs task 1, which waits, and task 2, which is held.
    async fn with_flow() -> Self {
        let fresh = Self::empty().await;
        let flow = Flow::new()
            .add("a", new_task(WORK).after(Duration::from_secs(3600)))
            .add("b", new_task(WORK))
            .add("c", new_task(WORK))
            .after(["a", "b"]);
        fresh.fixture.store.create_flow(&flow.resolve().unwrap()).await.unwrap();
        fresh.fixture.engine("a").await.claim_one().await;
        assert_eq!(fresh.violations().await, []);
        fresh
    }

    /// Two tasks of a class of which one may run: task 1 is held.
    async fn with_limit() -> Self {
        let fresh = Self::empty().await;
        let limit = Limit::of_class("limited", WORK, LimitOptions::max(1)).unwrap();
        fresh.fixture.store.set_limit(&limit).await.unwrap();
        fresh.fixture.create_work(2).await;
        let mut engine = fresh.fixture.engine("a").await;
        assert_eq!(engine.claim_all(5).await.len(), 1);
        assert_eq!(fresh.violations().await, []);
        fresh
    }

    /// The violations after changes of rows that stay.
    async fn harmed(&self, harm: &str) -> Vec<(ViolationKind, String)> {
        self.client.batch_execute(harm).await.unwrap();
        self.violations().await
    }

    async fn violations(&self) -> Vec<(ViolationKind, String)> {
        let violations = self.fixture.store.verify().await.unwrap();
        violations.into_iter().map(|one| (one.kind, one.message)).collect()
    }

    /// The violations after a change, which is undone.
    async fn after(&self, change: &str) -> Vec<(ViolationKind, String)> {
        self.client.batch_execute(change).await.unwrap();
        let violations = self.violations().await;
        self.client
            .batch_execute(
                "DELETE FROM task_engine.ended_executions WHERE task_id = 2;
                 DELETE FROM task_engine.steps; DELETE FROM task_engine.signals;
                 DELETE FROM task_engine.task_dependencies WHERE task_id <> 1;
                 DELETE FROM task_engine.suspended_tasks WHERE task_id <> 1;
                 UPDATE task_engine.instances SET stopped_at = NULL, started_at = now() - interval '1 hour';
                 UPDATE task_engine.waiting_tasks SET due_at = now() + interval '1 hour';
                 UPDATE task_engine.suspended_tasks SET attempt = 1",
            )
            .await
            .unwrap();
        violations
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn verify_finds_tasks_not_resumed() {
    let fresh = Fresh::new().await;
    let signal = "INSERT INTO task_engine.signals VALUES (1, 'paid', 'null', $at);";
    let child = "INSERT INTO task_engine.ended_executions
          (task_id, attempt, retry_number, stopped_at, ends_task)
        VALUES (2, 1, 0, $at, 'stopped');";
    for (event, what) in [(signal, "its signal paid was sent"), (child, "its child 2 ended")] {
        let expected = format!("task 1 still waits, although {what} more than a minute ago");
        let late = event.replace("$at", "now() - interval '90 s'");
        assert_eq!(fresh.after(&late).await, [(ViolationKind::TaskNotResumed, expected)]);
        // A moment after the event, or without an engine that resumes it, it may wait.
        assert_eq!(fresh.after(&event.replace("$at", "now() - interval '5 s'")).await, []);
        for harmless in [
            "UPDATE task_engine.instances SET stopped_at = now()",
            "UPDATE task_engine.instances SET started_at = now()",
            "UPDATE task_engine.waiting_tasks SET due_at = now()",
            "UPDATE task_engine.suspended_tasks SET attempt = 0",
        ] {
            assert_eq!(fresh.after(&format!("{late} {harmless}")).await, [], "{harmless}");
        }
    }
    let other =
        "INSERT INTO task_engine.signals VALUES (1, 'other', 'null', now() - interval '90 s')";
    assert_eq!(fresh.after(other).await, []);
}

#[tokio::test(flavor = "multi_thread")]
async fn verify_finds_rows_without_task() {
    let fresh = Fresh::new().await;
    for (change, what) in [
        ("steps VALUES (9, 'pay', 1, 1, 'step', 'null', NULL, now(), now())", "steps"),
        ("signals VALUES (9, 'paid', 'null', now())", "signals"),
        ("task_dependencies VALUES (9, 1), (9, 2)", "children"),
        ("suspended_tasks VALUES (9, 1, '{}', NULL)", "a suspension"),
    ] {
        let found = fresh.after(&format!("INSERT INTO task_engine.{change}")).await;
        let expected = format!("task 9 has {what}, but was never created");
        assert_eq!(found, [(ViolationKind::TaskNotCreated, expected)]);
    }
    let far = "INSERT INTO task_engine.signals VALUES (1, 'a', 'null', 'infinity')";
    let found = fresh.after(far).await;
    assert!(matches!(found[..], [(ViolationKind::TimeOutOfRange, _)]), "{found:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn verify_finds_wrong_blocked_rows() {
    for (harm, complaint) in [
        (
            "DELETE FROM task_engine.suspended_tasks",
            r#"task 3 waits in queue "\u001edefault", but for no task"#,
        ),
        (
            "UPDATE task_engine.suspended_tasks SET attempt = 7",
            r#"task 3 waits in queue "\u001edefault", but for no task"#,
        ),
        (
            "UPDATE task_engine.suspended_tasks SET blocked_on = 9",
            "task 3 waits for task 9, on which it does not depend",
        ),
        (
            "UPDATE task_engine.task_dependencies SET condition = NULL",
            "task 3 waits for task 1, on which it does not depend",
        ),
    ] {
        let found = Fresh::with_flow().await.harmed(harm).await;
        let expected = (ViolationKind::BlockedRowInvalid, complaint.to_owned());
        assert_eq!(found, [expected], "{harm}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn verify_finds_blocked_tasks_not_resumed() {
    let end = |id: i64, status: &str, seconds_ago: i64| {
        let error = if status == "stopped" { "NULL" } else { "'{}'" };
        format!(
            "DELETE FROM task_engine.waiting_tasks WHERE task_id = {id};
             UPDATE task_engine.instances SET started_at = now() - interval '1 hour';
             INSERT INTO task_engine.ended_executions
               (task_id, attempt, retry_number, stopped_at, error, ends_task)
             VALUES ({id}, 1, 0, now() - interval '{seconds_ago} s', {error}, '{status}');"
        )
    };
    let both = |one: i64, two: i64| end(1, "stopped", one) + &end(2, "stopped", two);
    let reopened = "INSERT INTO task_engine.reopened_tasks VALUES (2, 1);
        INSERT INTO task_engine.waiting_tasks
          (task_id, queue, task_class, priority, due_at, attempt, retry_number)
        VALUES (2, 'default', 'work', 0, now(), 2, 0);";
    let removed = "DELETE FROM task_engine.claims;
        DELETE FROM task_engine.ended_executions WHERE task_id = 1;
        DELETE FROM task_engine.created_tasks WHERE id = 1;";
    for (events, is_wrong) in [
        (both(90, 90), true),
        (both(90, 5), false),
        (end(2, "stopped", 90), false),
        (end(2, "failed", 90), true),
        (end(2, "cancelled", 90), true),
        (end(2, "failed", 5), false),
        (end(2, "failed", 90) + reopened, false),
        (both(90, 90) + removed, true),
        (both(90, 90) + "UPDATE task_engine.instances SET stopped_at = now()", false),
        (both(90, 90) + "UPDATE task_engine.instances SET started_at = now()", false),
    ] {
        let found = Fresh::with_flow().await.harmed(&events).await;
        let message = "task 3 still waits for others, although its dependencies decided more than a minute ago";
        let wrong = (ViolationKind::TaskNotResumed, message.to_owned());
        let expected: &[_] = if is_wrong { &[wrong] } else { &[] };
        assert_eq!(found, expected, "{events}");
    }
}

/// Task 3 waits for task 1 next.
#[tokio::test(flavor = "multi_thread")]
async fn overdue_blocked_tasks_are_found() {
    let end = |seconds_ago: i64| {
        format!(
            "INSERT INTO task_engine.ended_executions
               (task_id, attempt, retry_number, stopped_at, ends_task)
             VALUES (1, 1, 0, now() - interval '{seconds_ago} s', 'stopped');"
        )
    };
    let reopened = "INSERT INTO task_engine.reopened_tasks VALUES (1, 1);";
    let removed = "DELETE FROM task_engine.created_tasks WHERE id = 1;";
    let started = "UPDATE task_engine.waiting_tasks SET queue = 'default' WHERE task_id = 3;";
    let next = "UPDATE task_engine.waiting_tasks SET attempt = 2 WHERE task_id = 3;";
    for (events, counted, is_overdue) in [
        (String::new(), 1, false),
        (end(90), 1, true),
        (end(30), 1, false),
        (end(90) + reopened, 1, false),
        (removed.to_owned(), 1, true),
        (end(90) + started, 0, false),
        (end(90) + next, 0, false),
    ] {
        let fresh = Fresh::with_flow().await;
        fresh.client.batch_execute(&events).await.unwrap();
        let blocked = fresh.fixture.store.blocked_tasks(5).await.unwrap();
        let expected: &[TaskId] = if is_overdue { &[TaskId(3)] } else { &[] };
        assert_eq!((blocked.tasks.counted, &blocked.overdue[..]), (counted, expected), "{events}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn verify_finds_wrong_limits() {
    let not_counted = r#"attempt 1 of task 1 runs, but does not count for limit "limited""#;
    for (harm, kind, complaint) in [
        (
            "UPDATE task_engine.waiting_tasks SET lane_key = NULL",
            ViolationKind::LimitedRowInvalid,
            r#"task 2 waits in queue "\u001fdefault" with the lane key null"#,
        ),
        (
            "UPDATE task_engine.waiting_tasks SET queue = 'default'",
            ViolationKind::LimitedRowInvalid,
            r#"task 2 waits in queue "default" with the lane key [[1, ""]]"#,
        ),
        (
            "UPDATE task_engine.limit_keys SET task_ids = '{}', attempts = '{}'",
            ViolationKind::LimitNotCounted,
            not_counted,
        ),
        ("DELETE FROM task_engine.limit_keys", ViolationKind::LimitNotCounted, not_counted),
        (
            "INSERT INTO task_engine.limit_keys (limit_id, key, total, written_at, task_ids, attempts)
             SELECT limit_id, key, total + 1, written_at, task_ids, attempts
             FROM task_engine.limit_keys",
            ViolationKind::LimitKeyTwice,
            r#"key "" of limit 1 has 2 rows"#,
        ),
    ] {
        let found = Fresh::with_limit().await.harmed(harm).await;
        assert_eq!(found, [(kind, complaint.to_owned())], "{harm}");
    }
}
