//! `verify` finds every violation and names the task.

mod common;

use common::{Engine, File, task};
use task_engine_core::dependency::Flow;
use task_engine_core::limit::{Limit, LimitOptions};
use task_engine_core::task::TaskId;

/// Task 1 is suspended and watches task 2, which is held.
const SUSPENDED: &str = "
    INSERT INTO task_engine_ended_executions (task_id, attempt, retry_number, stopped_at, error, retry_at)
        VALUES (1, 1, 0, 0, '{}', 1);
    UPDATE task_engine_waiting_tasks SET attempt = 2;
    INSERT INTO task_engine_task_dependencies (task_id, depends_on) VALUES (1, 2), (1, 77);
    INSERT INTO task_engine_suspended_tasks (task_id, attempt, signals, watching)
        VALUES (1, 1, '[\"paid\"]', 2);
    UPDATE task_engine_instances SET started_at = 0;";

/// `events` are rows as of some seconds ago.
async fn violations_of_suspended(events: &str, seconds_ago: i64) -> Vec<String> {
    let file = File::with_tables().await;
    let store = file.open();
    store.create(&[task("work").after(std::time::Duration::from_secs(60))]).await.unwrap();
    store.create(&[task("work")]).await.unwrap();
    Engine::register(&store, "a").await.claim(1).await;
    file.connect().execute_batch(SUSPENDED).unwrap();
    assert_eq!(store.verify().await.unwrap(), []);
    let at = format!("(unixepoch() - {seconds_ago}) * 1000000");
    file.connect().execute_batch(&events.replace("$at", &at)).unwrap();
    let violations = store.verify().await.unwrap();
    let kinds: Vec<_> = violations.iter().map(|one| one.kind.as_str()).collect();
    assert!(kinds.iter().all(|kind| *kind == "task_not_resumed"), "{violations:?}");
    violations.into_iter().map(|one| one.message).collect()
}

#[tokio::test]
async fn verify_finds_tasks_not_resumed() {
    let signal = "INSERT INTO task_engine_signals VALUES (1, 'paid', 'null', $at, 0);";
    let child = "INSERT INTO task_engine_ended_executions
            (task_id, attempt, retry_number, stopped_at, ends_task)
        VALUES (2, 1, 0, $at, 'stopped');";
    for (event, what) in [(signal, "its signal paid was sent"), (child, "its child 2 ended")] {
        let expected = format!("task 1 still waits, although {what} more than a minute ago");
        assert_eq!(violations_of_suspended(event, 90).await, [expected]);
        // A moment after the event, or without an engine that resumes it, it may wait.
        assert_eq!(violations_of_suspended(event, 5).await, [""; 0]);
        for harmless in [
            "UPDATE task_engine_instances SET stopped_at = 1",
            "UPDATE task_engine_instances SET started_at = unixepoch() * 1000000",
            "UPDATE task_engine_waiting_tasks SET due_at = 0",
            "UPDATE task_engine_suspended_tasks SET attempt = 0",
        ] {
            let events = format!("{event} {harmless}");
            assert_eq!(violations_of_suspended(&events, 90).await, [""; 0], "{harmless}");
        }
    }
    let other = signal.replace("'paid'", "'other'");
    assert_eq!(violations_of_suspended(&other, 90).await, [""; 0]);
}

#[tokio::test]
async fn verify_describes_every_violation() {
    let lost = "DELETE FROM task_engine_waiting_tasks";
    let waits = |id: i64, attempt: i64| {
        format!(
            "INSERT INTO task_engine_waiting_tasks VALUES ({id}, 'default', 'work', 0, 0, {attempt}, 0, NULL);"
        )
    };
    let ended = |attempt: i64, word: &str, error: &str| {
        format!(
            "INSERT INTO task_engine_ended_executions (task_id, attempt, retry_number, stopped_at, error, ends_task)
             VALUES (1, {attempt}, 0, 0, {error}, {word});"
        )
    };
    for (harm, complaint) in [
        (lost.to_owned(), "task 1 is lost"),
        ("DELETE FROM task_engine_created_tasks".to_owned(), "task 1 waits, but was never created"),
        (waits(2, 1), "task 2 waits, and an engine holds its attempt 1"),
        (
            "INSERT INTO task_engine_claims VALUES (1, 1, 0, '[[2, 2, 0]]')".to_owned(),
            "task 2 is held 2 times",
        ),
        (
            "UPDATE task_engine_claims SET instance_id = 77".to_owned(),
            "by instance 77, which does not exist",
        ),
        (ended(1, "'failed'", "'{}'"), "task 1 waits as attempt 1, but attempt 1 has ended"),
        (ended(1, "'stopped'", "NULL"), "task 1 had stopped with attempt 1, and went on"),
        (ended(1, "NULL", "'{}'"), "task 1, attempt 1 has no coherent ending"),
        (ended(1, "'stopped'", "'{}'"), "task 1, attempt 1 has no coherent ending"),
        (
            ended(5, "'failed'", "'{}'").replace("(1, 5", "(2, 5"),
            "task 2 is held as attempt 1, but attempt 5 has ended",
        ),
        (
            ended(1, "'failed'", "'{}'").replace("(1, 1", "(9, 1"),
            "task 9 has ended attempts, but was never created",
        ),
        (
            "INSERT INTO task_engine_execution_progress VALUES (1, 1, 1, 0, NULL, NULL, NULL)"
                .to_owned(),
            "task 1, attempt 1 has said something, but is neither held nor ended",
        ),
        (
            "INSERT INTO task_engine_execution_logs VALUES (2, 1, 3, 0, 'info', 'x')".to_owned(),
            "task 2, attempt 1 has line 3, but has said 0 lines",
        ),
        (
            "INSERT INTO task_engine_cancellations VALUES (2, 1, 0, NULL, NULL)".to_owned(),
            "task 2, attempt 1 was to be cancelled, but has not ended",
        ),
        (
            "INSERT INTO task_engine_steps VALUES (9, 'pay', 1, 1, 'step', 'null', NULL, 0, 0)"
                .to_owned(),
            "task 9 has steps, but was never created",
        ),
        (
            "INSERT INTO task_engine_signals VALUES (9, 'paid', 'null', 0, 0)".to_owned(),
            "task 9 has signals, but was never created",
        ),
        (
            "INSERT INTO task_engine_task_dependencies (task_id, depends_on) VALUES (9, 1)".to_owned(),
            "task 9 has children, but was never created",
        ),
        (
            "INSERT INTO task_engine_suspended_tasks (task_id, attempt, signals) VALUES (9, 1, '[]')"
                .to_owned(),
            "task 9 has a suspension, but was never created",
        ),
        (
            "INSERT INTO task_engine_reopened_tasks VALUES (9, 1)".to_owned(),
            "task 9 has a retried end, but was never created",
        ),
        (
            "INSERT INTO task_engine_steps VALUES (2, 'pay', 1, 1, 'step', '{', NULL, 0, 0)"
                .to_owned(),
            "the result of step pay of task 2 cannot be read",
        ),
        (
            "PRAGMA ignore_check_constraints = ON;
             UPDATE task_engine_created_tasks SET task_parameters = '[]' WHERE id = 1"
                .to_owned(),
            "the parameters of task 1 cannot be read: a JSON object is needed",
        ),
    ] {
        let file = File::with_tables().await;
        let store = file.open();
        // Task 1 waits, task 2 is held.
        store.create(&[task("work").after(std::time::Duration::from_secs(60))]).await.unwrap();
        store.create(&[task("work")]).await.unwrap();
        Engine::register(&store, "a").await.claim(1).await;
        assert_eq!(store.verify().await.unwrap(), []);

        file.connect().execute_batch(&harm).unwrap();
        let complaints = store.verify().await.unwrap();
        assert!(
            complaints.iter().any(|it| it.message.contains(complaint)),
            "{harm}: {complaints:?}"
        );
    }
}

/// Task 3 needs task 1, which waits, and task 2, which is held.
async fn flow_of_three() -> (File, task_engine_sqlite::SqliteStore) {
    let file = File::with_tables().await;
    let store = file.open();
    let later = task("work").after(std::time::Duration::from_secs(60));
    let flow = Flow::new().add("a", later).add("b", task("work"));
    let flow = flow.add("c", task("work")).after(["a", "b"]).resolve().unwrap();
    store.create_flow(&flow).await.unwrap();
    Engine::register(&store, "a").await.claim(1).await;
    assert_eq!(store.verify().await.unwrap(), []);
    (file, store)
}

#[tokio::test]
async fn verify_finds_wrong_blocked_rows() {
    for (harm, complaint) in [
        (
            "DELETE FROM task_engine_suspended_tasks",
            "task 3 waits in the queue of blocked tasks, but for no task",
        ),
        (
            "UPDATE task_engine_suspended_tasks SET attempt = 7",
            "task 3 waits in the queue of blocked tasks, but for no task",
        ),
        (
            "UPDATE task_engine_suspended_tasks SET blocked_on = 9",
            "task 3 waits for task 9, on which it does not depend",
        ),
        (
            "UPDATE task_engine_task_dependencies SET condition = NULL",
            "task 3 waits for task 1, on which it does not depend",
        ),
        (
            "UPDATE task_engine_waiting_tasks SET queue = char(30) || 'other' WHERE task_id = 3",
            "task 3 waits in the queue other, but belongs to the queue default",
        ),
        (
            "UPDATE task_engine_waiting_tasks SET queue = 'default' WHERE task_id = 3",
            "task 3 waits for task 1, but not in the queue of blocked tasks",
        ),
    ] {
        let (file, store) = flow_of_three().await;
        file.connect().execute_batch(harm).unwrap();
        let violations = store.verify().await.unwrap();
        let found: Vec<_> =
            violations.iter().map(|one| (one.kind.as_str(), one.message.as_str())).collect();
        assert_eq!(found, [("blocked_row_invalid", complaint)], "{harm}");
    }
}

#[tokio::test]
async fn verify_finds_blocked_tasks_not_resumed() {
    let end = |id: i64, word: &str, seconds_ago: i64| {
        let error = if word == "stopped" { "NULL" } else { "'{}'" };
        format!(
            "DELETE FROM task_engine_waiting_tasks WHERE task_id = {id};
             UPDATE task_engine_instances SET started_at = 0;
             INSERT INTO task_engine_ended_executions
                (task_id, attempt, retry_number, stopped_at, error, ends_task)
             VALUES ({id}, 1, 0, (unixepoch() - {seconds_ago}) * 1000000, {error}, '{word}');"
        )
    };
    let both = |one: i64, two: i64| end(1, "stopped", one) + &end(2, "stopped", two);
    let reopened = "INSERT INTO task_engine_reopened_tasks VALUES (2, 1);
        INSERT INTO task_engine_waiting_tasks (task_id, queue, task_class, priority, due_at, attempt, retry_number)
        VALUES (2, 'default', 'work', 0, 0, 2, 0);";
    let removed = "DELETE FROM task_engine_claims;
        DELETE FROM task_engine_ended_executions WHERE task_id = 1;
        DELETE FROM task_engine_created_tasks WHERE id = 1;";
    for (events, is_wrong) in [
        (both(90, 90), true),
        (both(90, 5), false),
        (end(2, "stopped", 90), false),
        (end(2, "failed", 90), true),
        (end(2, "cancelled", 90), true),
        (end(2, "failed", 5), false),
        (end(2, "failed", 90) + reopened, false),
        (both(90, 90) + removed, true),
        (both(90, 90) + "UPDATE task_engine_instances SET stopped_at = 1", false),
        (
            both(90, 90) + "UPDATE task_engine_instances SET started_at = unixepoch() * 1000000",
            false,
        ),
    ] {
        let (file, store) = flow_of_three().await;
        file.connect().execute_batch(&events).unwrap();
        let violations = store.verify().await.unwrap();
        let found: Vec<_> =
            violations.iter().map(|one| (one.kind.as_str(), one.message.as_str())).collect();
        let message = "task 3 still waits for others, although its dependencies decided more than a minute ago";
        let expected: &[_] = if is_wrong { &[("task_not_resumed", message)] } else { &[] };
        assert_eq!(found, expected, "{events}");
    }
}

/// Task 3 waits for task 1 next.
#[tokio::test]
async fn overdue_blocked_tasks_are_found() {
    let end = |seconds_ago: i64| {
        format!(
            "INSERT INTO task_engine_ended_executions
                (task_id, attempt, retry_number, stopped_at, ends_task)
             VALUES (1, 1, 0, (unixepoch() - {seconds_ago}) * 1000000, 'stopped');"
        )
    };
    let reopened = "INSERT INTO task_engine_reopened_tasks VALUES (1, 1);";
    let removed = "DELETE FROM task_engine_created_tasks WHERE id = 1;";
    let started = "UPDATE task_engine_waiting_tasks SET queue = 'default' WHERE task_id = 3;";
    let next = "UPDATE task_engine_waiting_tasks SET attempt = 2 WHERE task_id = 3;";
    for (events, counted, is_overdue) in [
        (String::new(), 1, false),
        (end(90), 1, true),
        (end(30), 1, false),
        (end(90) + reopened, 1, false),
        (removed.to_owned(), 1, true),
        (end(90) + started, 0, false),
        (end(90) + next, 0, false),
    ] {
        let (file, store) = flow_of_three().await;
        file.connect().execute_batch(&events).unwrap();
        let blocked = store.blocked_tasks(5).await.unwrap();
        let expected: &[TaskId] = if is_overdue { &[TaskId(3)] } else { &[] };
        assert_eq!((blocked.tasks.counted, &blocked.overdue[..]), (counted, expected), "{events}");
    }
}

#[tokio::test]
async fn verify_finds_wrong_limits() {
    for (harm, kind, complaint) in [
        (
            "UPDATE task_engine_waiting_tasks SET lane_key = NULL",
            "limited_row_invalid",
            "task 2 waits in the lanes of tasks with limits, but has no lane key",
        ),
        (
            "UPDATE task_engine_waiting_tasks SET queue = 'default'",
            "limited_row_invalid",
            "task 2 has the lane key [[1,\"\"]], but waits with tasks without limits",
        ),
        (
            "UPDATE task_engine_waiting_tasks SET queue = char(31) || 'other'",
            "limited_row_invalid",
            "task 2 waits in the queue other, but belongs to the queue default",
        ),
        (
            "UPDATE task_engine_waiting_tasks SET lane_key = '[[1,\"x\"]]'",
            "limited_row_invalid",
            "task 2 waits in the lane [[1,\"x\"]], but the keys of its limits are [[1,\"\"]]",
        ),
        (
            "UPDATE task_engine_waiting_tasks SET lane_key = '[[1'",
            "limited_row_invalid",
            "task 2 waits in the lane [[1, but",
        ),
        (
            "UPDATE task_engine_limit_keys SET holders = '[]'",
            "limit_not_counted",
            "task 1, attempt 1 runs, but does not count for the key \"\" of the limit \"work\"",
        ),
        (
            "DELETE FROM task_engine_limit_keys",
            "limit_not_counted",
            "task 1, attempt 1 runs, but does not count",
        ),
    ] {
        let file = File::with_tables().await;
        let store = file.open();
        let limit = Limit::of_class("work", "work", LimitOptions::max(1)).unwrap();
        store.set_limit(&limit).await.unwrap();
        store.create(&[task("work"), task("work")]).await.unwrap();
        let (_, claim) = Engine::register(&store, "a").await.claim(5).await;
        assert_eq!(claim.tasks.len(), 1);
        assert_eq!(store.verify().await.unwrap(), []);

        file.connect().execute_batch(harm).unwrap();
        let violations = store.verify().await.unwrap();
        assert!(
            violations.iter().all(|it| it.kind.as_str() == kind)
                && violations.iter().any(|it| it.message.contains(complaint)),
            "{harm}: {violations:?}"
        );
    }
}
