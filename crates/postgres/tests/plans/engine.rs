//! Statements of engines and clients.

use std::sync::{Arc, Mutex};

use task_engine_postgres::PgStore;
use task_engine_store::sql::statement;
use task_engine_test_harness::TestServer;
use tokio_postgres::{AsyncMessage, NoTls};

use crate::{SETTINGS, assert_by_keys, pages, plan, tables};

#[tokio::test]
async fn head_scan_probes_lanes() {
    let client = tables().await;
    let plan = plan(
        &client,
        "look",
        statement(include_str!("../../sql/engine/claim.sql"), "scan_heads"),
        "'{a}', '{b}', 0",
    )
    .await;
    assert_by_keys(&plan, &["waiting_tasks"]);
    assert!(plan.contains("waiting_tasks_by_lane"), "{plan}");
}

#[tokio::test]
async fn known_heads_start_at_positions() {
    let client = tables().await;
    let arguments = "'{a}', '{b}', '{0}', '{now}', '{0}'";
    let plan = plan(
        &client,
        "again",
        statement(include_str!("../../sql/engine/claim.sql"), "scan_known_heads"),
        arguments,
    )
    .await;
    assert_by_keys(&plan, &["waiting_tasks"]);
    assert!(plan.contains("waiting_tasks_by_lane"), "{plan}");
}

const CLAIM: &str = include_str!("../../sql/engine/claim.sql");
const CLAIM_LANE: &str = statement(CLAIM, "claim_lane");
const CLAIM_LANES: &str = statement(CLAIM, "claim_lanes");

#[tokio::test]
async fn claim_reads_one_lane() {
    let client = tables().await;
    let plan = plan(&client, "claim", CLAIM_LANE, "1, 1, 10, 'a', 'b', '-infinity', 0, 0").await;
    assert_by_keys(&plan, &["waiting_tasks", "created_tasks", "claims"]);
    assert!(plan.contains("waiting_tasks_by_lane"), "{plan}");
    assert!(!plan.contains("Sort Key: w."), "the index has the order:\n{plan}");
}

#[tokio::test]
async fn claim_merges_lanes() {
    let client = tables().await;
    let arguments = "1, 1, 10, '{a}', '{b}', '{-infinity}', '{0}', 0, 20";
    let plan = plan(&client, "claim", CLAIM_LANES, arguments).await;
    assert_by_keys(&plan, &["waiting_tasks", "created_tasks", "claims"]);
    assert!(plan.contains("waiting_tasks_by_lane"), "{plan}");
    assert!(plan.contains("Tid Scan on waiting_tasks"), "{plan}");
    assert!(!plan.contains("Hash Join"), "{plan}");
}

#[tokio::test]
async fn record_reads_by_keys() {
    let client = tables().await;
    let arguments = "'{1}','{1}','{0}','{1}','{1}','{0}','{0}','{0}','{0}','{0}','{NULL}','{NULL}','{NULL}','{}'";
    let plan = plan(
        &client,
        "record",
        statement(include_str!("../../sql/engine/record.sql"), "record"),
        arguments,
    )
    .await;
    assert_by_keys(&plan, &["created_tasks", "ended_executions", "claims"]);
}

#[tokio::test]
async fn heartbeat_reads_no_history() {
    let client = tables().await;
    let plan = plan(
        &client,
        "beat",
        statement(include_str!("../../sql/engine/instances.sql"), "heartbeat"),
        "1",
    )
    .await;
    assert_by_keys(&plan, &["created_tasks", "ended_executions"]);
    assert!(!plan.contains("Seq Scan on waiting_tasks"), "{plan}");
}

/// `paused_queues` is read once per statement, not once per row.
#[tokio::test]
async fn pauses_are_read_once() {
    let client = tables().await;
    let lane = "1, 1, 10, 'a', 'b', '-infinity', 0, 0";
    let lanes = "1, 1, 10, '{a}', '{b}', '{-infinity}', '{0}', 0, 20";
    let again = statement(include_str!("../../sql/engine/claim.sql"), "scan_known_heads");
    let look = statement(include_str!("../../sql/engine/claim.sql"), "scan_heads");
    for (name, statement, arguments) in [
        ("one", CLAIM_LANE, lane),
        ("many", CLAIM_LANES, lanes),
        ("again", again, "'{a}', '{b}', '{0}', '{now}', '{0}'"),
        ("look", look, "'{a}', '{b}', 0"),
    ] {
        let plan = plan(&client, name, statement, arguments).await;
        let lines: Vec<&str> = plan.lines().collect();
        let scans: Vec<usize> =
            (0..lines.len()).filter(|n| lines[*n].contains(" on paused_queues p ")).collect();
        assert_eq!(scans.len(), 1, "{plan}");
        assert!(lines[scans[0] - 1].contains("InitPlan"), "{plan}");
    }
}

/// Many tasks of another queue, class or priority, due or not, add at most the depth of
/// an index to the reads of a scan and a claim.
#[tokio::test]
async fn other_lanes_are_not_read() {
    let client = tables().await;
    let fill = |queue: &str, class: &str, priority: i32, due: &str, rows: u32| {
        format!(
            "INSERT INTO task_engine.waiting_tasks
               SELECT nextval('ids'), now() + interval '{due}', {priority}, 1, 0, '{queue}', '{class}'
               FROM generate_series(1, {rows});"
        )
    };
    let register = "INSERT INTO task_engine.instances
        (name, host, pid, version, workers, queues, classes, lease, started_at, heartbeat_at)
        VALUES ('e', 'h', 1, '0', 1, '{}', '{}', '1 hour', now(), now())";
    client.batch_execute(&format!("CREATE SEQUENCE ids; {register}")).await.unwrap();
    client.batch_execute(&fill("q", "c", 5, "-1 second", 10)).await.unwrap();
    for (name, statement) in [
        ("look", statement(include_str!("../../sql/engine/claim.sql"), "scan_heads")),
        ("claim", CLAIM_LANES),
    ] {
        client.batch_execute(&format!("PREPARE {name} AS {statement}")).await.unwrap();
    }
    let look = "'{q,other}', '{c}', -2147483648";
    let claims = ["1", "2"].map(|id| {
        format!("{id}, 1, 1, '{{q,q}}', '{{c,d}}', '{{-infinity,-infinity}}', '{{0,0}}', 5, 2")
    });
    let before = (pages(&client, "look", look).await, pages(&client, "claim", &claims[0]).await);
    let crowd = [
        fill("q", "c", 9, "1 day", 30_000),
        fill("q", "c", 1, "-1 hour", 30_000),
        fill("q", "unknown", 9, "-1 hour", 30_000),
        fill("crowd", "c", 9, "-1 hour", 30_000),
    ];
    client.batch_execute(&crowd.concat()).await.unwrap();
    let after = (pages(&client, "look", look).await, pages(&client, "claim", &claims[1]).await);
    // A probe more for each priority, and a level or two more for each probe.
    assert!(after.0 <= before.0 + 40, "looks: {before:?}, then {after:?}");
    assert!(after.1 <= before.1 + 40, "claims: {before:?}, then {after:?}");
}

#[tokio::test]
async fn report_reads_by_keys() {
    let client = tables().await;
    let arguments =
        "'{1}','{1}','{1}','{1}','{1}','{a}','{0}','{1}','{1}','{1}','{0}','{info}','{a}'";
    let plan = plan(
        &client,
        "report",
        statement(include_str!("../../sql/engine/progress.sql"), "report"),
        arguments,
    )
    .await;
    assert_by_keys(&plan, &["created_tasks", "execution_progress", "execution_logs"]);
}

#[tokio::test]
async fn cancel_response_is_written_by_keys() {
    let client = tables().await;
    let arguments = "'{1}','{1}','{0}','{killed}'";
    let plan = plan(
        &client,
        "record_cancel_responses",
        statement(include_str!("../../sql/engine/record.sql"), "record_cancel_responses"),
        arguments,
    )
    .await;
    assert_by_keys(&plan, &["cancel_requests r", "cancellations"]);
}

#[tokio::test]
async fn retention_reads_by_keys() {
    let client = tables().await;
    let lock = plan(
        &client,
        "lock",
        statement(include_str!("../../sql/engine/retention.sql"), "lock_keys"),
        "'{1}'",
    )
    .await;
    assert_by_keys(&lock, &["created_tasks", "unique_tasks"]);
    let prune = plan(
        &client,
        "prune",
        statement(include_str!("../../sql/engine/retention.sql"), "prune"),
        "'{1}', '{stopped}'",
    )
    .await;
    assert_by_keys(&prune, &["created_tasks", "unique_tasks", "ended_executions"]);
}

/// The statements inside the function for unique tasks, as the server itself
/// explains them while they run.
#[tokio::test]
async fn unique_creation_reads_by_keys() {
    let url = TestServer::shared().create_database().await;
    PgStore::connect(&url).await.unwrap().migrate().await.unwrap();
    let (client, mut connection) = tokio_postgres::connect(&url, NoTls).await.unwrap();
    let plans = Arc::new(Mutex::new(String::new()));
    let notices = plans.clone();
    tokio::spawn(async move {
        while let Some(Ok(message)) =
            std::future::poll_fn(|context| connection.poll_message(context)).await
        {
            if let AsyncMessage::Notice(notice) = message {
                notices.lock().unwrap().push_str(&format!("{}\n", notice.message()));
            }
        }
    });
    client.batch_execute(SETTINGS).await.unwrap();
    let explain = "LOAD 'auto_explain'; SET auto_explain.log_min_duration = 0; \
        SET auto_explain.log_nested_statements = on; SET client_min_messages = log";
    client.batch_execute(explain).await.unwrap();
    for answer in ["keep", "replace"] {
        let create = format!(
            "SELECT task_engine.create_task('a', unique_key => 'k', on_conflict => '{answer}')"
        );
        client.batch_execute(&create).await.unwrap();
    }
    let plans = plans.lock().unwrap().clone();
    for table in ["unique_tasks", "waiting_tasks", "created_tasks", "ended_executions"] {
        assert!(plans.contains(&format!(" on {table} ")), "{table} in:\n{plans}");
    }
    assert_by_keys(&plans, &["unique_tasks", "waiting_tasks", "created_tasks", "ended_executions"]);
}

#[tokio::test]
async fn only_due_schedules_are_read() {
    let client = tables().await;
    let plan = plan(
        &client,
        "due",
        statement(include_str!("../../sql/schedules/schedules.sql"), "due"),
        "100",
    )
    .await;
    assert_by_keys(&plan, &["schedules", "created_tasks", "ended_executions", "waiting_tasks"]);
    assert!(plan.contains("schedules_by_next_at"), "{plan}");
    assert!(!plan.contains("Sort"), "the index has the order:\n{plan}");
    let beat = statement(include_str!("../../sql/engine/instances.sql"), "heartbeat");
    let plan = self::plan(&client, "beat", beat, "1").await;
    assert!(plan.contains("schedules_by_next_at"), "{plan}");
}

#[tokio::test]
async fn schedules_are_fired_by_keys() {
    let client = tables().await;
    let lock = statement(include_str!("../../sql/schedules/schedules.sql"), "lock");
    let lock = plan(&client, "lock", lock, "'{1}', '{1}', '{NULL}'").await;
    assert_by_keys(&lock, &["schedules", "created_tasks", "ended_executions"]);
    let fire = statement(include_str!("../../sql/schedules/schedules.sql"), "fire");
    let fire =
        plan(&client, "fire", fire, "'{1}', '{now}', '{now}', '{1}', '{1}', '{now}', '{1}', 99")
            .await;
    assert_by_keys(&fire, &["schedules", "fired_slots"]);
    let skip = statement(include_str!("../../sql/schedules/schedules.sql"), "skip");
    let skip = plan(&client, "skip", skip, "'{1}', '{manual}', '{now}', '{now}', '{1}', 99").await;
    assert_by_keys(&skip, &["schedules", "schedule_events"]);
}

#[tokio::test]
async fn completions_are_read_by_key() {
    let client = tables().await;
    let statement = statement(include_str!("../../sql/engine/complete.sql"), "completed");
    let plan = plan(&client, "completed", statement, "'{1}', '{1}', '{1}'").await;
    assert_by_keys(&plan, &["ended_executions"]);
}

/// Which lives history names is found by the oldest tasks, not by all.
#[tokio::test]
async fn old_sessions_are_found_by_keys() {
    let client = tables().await;
    let statement = statement(include_str!("../../sql/engine/instances.sql"), "prune_instances");
    let plan = plan(&client, "lives", statement, "1, 1").await;
    assert_by_keys(&plan, &["ended_executions"]);
    assert!(plan.contains("Index Scan using created_tasks_pkey"), "{plan}");
}
