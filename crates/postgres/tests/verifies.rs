//! `verify` finds what is wrong with the rows of durable tasks.

use std::sync::Arc;
use std::time::Duration;

use task_engine_conformance::fixture::{Fixture, WORK, new_task};
use task_engine_postgres::PgStore;
use task_engine_store::check::ViolationKind;
use task_engine_test_harness::TestServer;
use tokio_postgres::{Client, NoTls};

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
    async fn new() -> Self {
        let url = TestServer::shared().create_database().await;
        let store = PgStore::connect(&url).await.unwrap();
        store.migrate().await.unwrap();
        let (client, connection) = tokio_postgres::connect(&url, NoTls).await.unwrap();
        tokio::spawn(connection);
        let fresh = Self { fixture: Fixture { store: Arc::new(store) }, client };
        fresh.fixture.create(new_task(WORK).after(Duration::from_secs(3600))).await;
        fresh.fixture.create(new_task(WORK)).await;
        fresh.fixture.engine("a").await.claim_one().await;
        fresh.client.batch_execute(SUSPENDED).await.unwrap();
        assert_eq!(fresh.violations().await, []);
        fresh
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
