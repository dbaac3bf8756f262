//! Statements of readers and operators.

use task_engine_store::sql::statement;

use crate::{assert_by_keys, plan, tables};

#[tokio::test]
async fn queues_are_counted_by_index_ranges() {
    let client = tables().await;
    let waiting = statement(include_str!("../../sql/readers/queues.sql"), "queues_waiting");
    let plan_of_waiting = plan(&client, "waiting", waiting, "100001, 10000").await;
    assert!(!plan_of_waiting.contains("Seq Scan"), "{plan_of_waiting}");
    assert!(!plan_of_waiting.contains("Sort"), "the index has the order:\n{plan_of_waiting}");
    let counts = plan_of_waiting.matches("(due_at <= now())").count();
    assert_eq!(counts, 1, "a range, not a filter:\n{plan_of_waiting}");
    let running = statement(include_str!("../../sql/readers/queues.sql"), "queues_running");
    let plan = plan(&client, "running", running, "").await;
    assert_by_keys(&plan, &["created_tasks", "ended_executions"]);
}

#[tokio::test]
async fn log_is_range_of_key() {
    let client = tables().await;
    let file = include_str!("../../sql/engine/progress.sql");
    for name in ["logs", "logs_newest"] {
        let plan = plan(&client, name, statement(file, name), "1, 0, 0, 2, 0, 10").await;
        assert_by_keys(&plan, &["execution_logs l"]);
        assert!(!plan.contains("Sort Key"), "the key has the order:\n{plan}");
        assert!(plan.contains("execution_logs_pkey"), "{plan}");
    }
}

#[tokio::test]
async fn executions_are_read_by_keys() {
    let client = tables().await;
    let plan = plan(
        &client,
        "executions",
        statement(include_str!("../../sql/readers/tasks.sql"), "executions"),
        "1",
    )
    .await;
    let tables = ["ended_executions e", "execution_progress p", "cancellations c"];
    assert_by_keys(&plan, &tables);
}

#[tokio::test]
async fn flow_is_read_by_index() {
    let client = tables().await;
    let arguments = "'order-17', 0, 500, 17";
    let flow = plan(
        &client,
        "flow",
        statement(include_str!("../../sql/readers/flow.sql"), "flow"),
        arguments,
    )
    .await;
    assert_by_keys(&flow, &["created_tasks", "waiting_tasks", "ended_executions"]);
    assert!(flow.contains("created_tasks_by_correlation"), "{flow}");
    let executions = statement(include_str!("../../sql/readers/flow.sql"), "flow_executions");
    let executions = plan(&client, "executions", executions, "'{1,2}'").await;
    assert_by_keys(&executions, &["ended_executions"]);
}

/// Readers of the current activity use keys, so the size of the history does not matter.
#[tokio::test]
async fn activity_reads_no_history() {
    let client = tables().await;
    let big = ["created_tasks", "ended_executions", "ended_executions near", "waiting_tasks w"];
    for (name, statement, arguments) in [
        ("held", statement(include_str!("../../sql/readers/activity.sql"), "activity_held"), ""),
        (
            "next",
            statement(include_str!("../../sql/readers/activity.sql"), "activity_next"),
            "1, 10, 0, 100",
        ),
        (
            "endings",
            statement(include_str!("../../sql/readers/activity.sql"), "endings"),
            "'{1}', '{2}', 10, 1000",
        ),
        (
            "ahead",
            statement(include_str!("../../sql/readers/activity.sql"), "queue_position"),
            "1, '{a}', '{b}', 10",
        ),
        ("locker", statement(include_str!("../../sql/readers/activity.sql"), "locked_by"), "1"),
    ] {
        let plan = plan(&client, name, statement, arguments).await;
        assert_by_keys(&plan, &big);
        assert!(!plan.contains("Seq Scan on ended_executions"), "{plan}");
        assert!(!plan.contains("Seq Scan on created_tasks"), "{plan}");
        assert!(!plan.contains("Seq Scan on waiting_tasks"), "{plan}");
    }
    let newest = plan(
        &client,
        "newest",
        statement(include_str!("../../sql/readers/activity.sql"), "activity_newest"),
        "",
    )
    .await;
    assert!(newest.contains("Limit") && newest.contains("Backward"), "{newest}");
    let failure_counts = plan(
        &client,
        "failure_counts",
        statement(include_str!("../../sql/readers/activity.sql"), "failure_counts"),
        "10",
    )
    .await;
    assert!(failure_counts.contains("ended_executions_failed_or_cancelled"), "{failure_counts}");
    assert!(!failure_counts.contains("Seq Scan on ended_executions"), "{failure_counts}");
}

#[tokio::test]
async fn checks_read_no_history() {
    let client = tables().await;
    // As `checks.rs` does for its statements.
    client.batch_execute("SET enable_bitmapscan = off").await.unwrap();
    let lanes = plan(
        &client,
        "lanes",
        statement(include_str!("../../sql/operators/checks.sql"), "lanes"),
        "1000",
    )
    .await;
    assert!(lanes.contains("waiting_tasks_by_lane"), "{lanes}");
    let failed = plan(
        &client,
        "failed",
        statement(include_str!("../../sql/operators/checks.sql"), "failed"),
        "1000",
    )
    .await;
    assert!(
        failed.contains("Index Scan Backward using ended_executions_failed_or_cancelled"),
        "{failed}"
    );
    let below = failed.split_once("Limit").map_or("", |(_, below)| below);
    let below = below.lines().nth(1).unwrap_or_default();
    assert!(below.contains("Index Scan Backward"), "it stops at its limit: {failed}");
}

#[tokio::test]
async fn export_page_is_range_of_keys() {
    let client = tables().await;
    let tables = [
        "created_tasks",
        "waiting_tasks",
        "ended_executions",
        "late_results",
        "execution_progress",
        "execution_logs",
        "cancellations",
        "cancel_requests",
        "unique_tasks",
    ];
    for (name, statement) in [
        ("tasks", statement(include_str!("../../sql/operators/export.sql"), "tasks")),
        ("executions", statement(include_str!("../../sql/operators/export.sql"), "executions")),
        ("late_results", statement(include_str!("../../sql/operators/export.sql"), "late_results")),
        ("progress", statement(include_str!("../../sql/operators/export.sql"), "progress")),
        ("logs", statement(include_str!("../../sql/operators/export.sql"), "logs")),
        (
            "cancellations",
            statement(include_str!("../../sql/operators/export.sql"), "cancellations"),
        ),
    ] {
        let plan = plan(&client, name, statement, "1, 200").await;
        assert_by_keys(&plan, &tables);
    }
}

/// Each part of a source is read by its key, from its end, up to the limit, and the bound of
/// a step is found without sorting. Two sorts remain: of the one task that names its flow,
/// and of running tasks: they are read from claims, which have no order by task, and there
/// are at most as many as workers.
#[tokio::test]
async fn search_step_reads_by_keys() {
    let client = tables().await;
    let file = include_str!("../../sql/readers/scan.sql");
    let tables = ["created_tasks", "ended_executions", "waiting_tasks"];
    for (source, arguments, sorts) in [
        ("all", "", 0),
        ("flow", ", 'order-17', 17", 1),
        ("ids", ", '{1,2}'", 0),
        ("status", ", true, true, '{failed}'", 1),
    ] {
        let name = format!("scan_bound_{source}");
        let arguments_of_bound = format!("1, 100, 10{arguments}");
        let bound = plan(&client, &name, statement(file, &name), &arguments_of_bound).await;
        assert_by_keys(&bound, &tables);
        let found = bound.lines().filter(|line| line.trim().starts_with("->  Sort ")).count();
        assert!(found <= sorts, "the index has the order:\n{bound}");
        let name = format!("scan_{source}");
        let arguments =
            format!("1, 100, 10, '{{a}}', null, null, null, now(), now(), true, false{arguments}");
        let step = plan(&client, &name, statement(file, &name), &arguments).await;
        assert_by_keys(&step, &tables);
        assert!(!step.contains("hashed SubPlan"), "history is not read whole:\n{step}");
        if source == "status" {
            // The primary key would also be a key, but leads through all history.
            for plan in [&bound, &step] {
                assert!(plan.contains("ended_executions_failed_or_cancelled"), "{plan}");
            }
        }
    }
}

#[tokio::test]
async fn seeking_by_time_probes_the_key() {
    let client = tables().await;
    let statement = statement(include_str!("../../sql/readers/scan.sql"), "creation_times");
    let plan = plan(&client, "creation_times", statement, "'{1, 2, 3}'").await;
    assert_by_keys(&plan, &["created_tasks"]);
    assert!(plan.contains("Index Scan Backward using created_tasks_pkey"), "{plan}");
}

#[tokio::test]
async fn edit_and_delete_read_by_keys() {
    let client = tables().await;
    let tables = ["created_tasks", "ended_executions", "waiting_tasks"];
    let edit = statement(include_str!("../../sql/operators/tasks.sql"), "edit");
    let arguments = "1, '{}', null, 0, 1, 'q'";
    assert_by_keys(&plan(&client, "edit", edit, arguments).await, &tables);
    let prune = statement(include_str!("../../sql/engine/retention.sql"), "prune");
    assert_by_keys(&plan(&client, "prune", prune, "'{1}', '{failed}'").await, &tables);
}

#[tokio::test]
async fn dashboard_reads_by_keys() {
    let client = tables().await;
    let tables = ["audit", "tokens", "rollups", "ended_logins"];
    for (name, statement, arguments) in [
        (
            "audit_page",
            statement(include_str!("../../sql/operators/audit.sql"), "audit_page"),
            "100, 10, null, null, null, null, null",
        ),
        (
            "login_is_ended",
            statement(include_str!("../../sql/operators/logins.sql"), "login_is_ended"),
            "''",
        ),
        (
            "token_by_hash",
            statement(include_str!("../../sql/operators/tokens.sql"), "token_by_hash"),
            "'', 1",
        ),
        (
            "token_touch",
            statement(include_str!("../../sql/operators/tokens.sql"), "token_touch"),
            "1, 1",
        ),
        (
            "token_revoke",
            statement(include_str!("../../sql/operators/tokens.sql"), "token_revoke"),
            "'a'",
        ),
        ("rollups", statement(include_str!("../../sql/engine/rollups.sql"), "rollups"), "3600, 60"),
        (
            "prune_rollups",
            statement(include_str!("../../sql/engine/rollups.sql"), "prune_rollups"),
            "1, 10",
        ),
    ] {
        let plan = plan(&client, name, statement, arguments).await;
        assert!(plan.contains("Scan"), "{name}:\n{plan}");
        assert_by_keys(&plan, &tables);
    }
    let statement = statement(include_str!("../../sql/engine/rollups.sql"), "write_rollups");
    let arguments =
        "1, '{1}', '{a}', '{0}', '{1}', '{1}', '{1}', '{1}', '{1}', '{1}', '{1}', '{1}'";
    let plan = plan(&client, "write_rollups", statement, arguments).await;
    assert!(plan.contains("Conflict Arbiter Indexes: rollups_pkey"), "{plan}");
}

/// The columns of tasks are repeated in each statement. A reader of rows panics if one is
/// missing.
#[tokio::test]
async fn task_rows_have_same_columns() {
    const FILES: [&str; 3] = [
        include_str!("../../sql/readers/tasks.sql"),
        include_str!("../../sql/readers/scan.sql"),
        include_str!("../../sql/readers/flow.sql"),
    ];
    let client = tables().await;
    let columns = async |sql: &str| -> Vec<String> {
        let prepared = client.prepare(sql).await.unwrap();
        prepared.columns().iter().map(|column| column.name().to_owned()).collect()
    };
    let expected = columns(statement(FILES[0], "tasks")).await;
    let mut compared = 0;
    for file in FILES {
        for name in file.lines().filter_map(|line| line.strip_prefix("-- name: ")) {
            let sql = statement(file, name);
            if sql.contains("FROM task_engine.tasks t") {
                let found = columns(sql).await;
                assert!(found.starts_with(&expected), "{name}: {found:?}, not {expected:?}");
                compared += 1;
            }
        }
    }
    assert_eq!(compared, 11, "statements that return rows of tasks");
}
