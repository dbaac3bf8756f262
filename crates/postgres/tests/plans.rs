//! The plans of the hot statements, prepared on empty tables and kept, as
//! engines do: none of them may read a big table from end to end.

use std::sync::{Arc, Mutex};

use task_engine_conformance::TestServer;
use task_engine_postgres::PgStore;
use task_engine_store::sql::statement;
use tokio_postgres::{AsyncMessage, Client, NoTls};

/// What `connection.rs` sets on every connection.
const SETTINGS: &str = "SET enable_seqscan = off; SET enable_hashjoin = off; \
    SET enable_mergejoin = off; SET plan_cache_mode = force_generic_plan; SET jit = off";

async fn tables() -> Client {
    let url = TestServer::shared().create_database().await;
    PgStore::connect(&url).await.unwrap().migrate().await.unwrap();
    let (client, connection) = tokio_postgres::connect(&url, NoTls).await.unwrap();
    tokio::spawn(connection);
    client.batch_execute(SETTINGS).await.unwrap();
    client
}

async fn plan(client: &Client, name: &str, statement: &str, arguments: &str) -> String {
    let text = format!("PREPARE {name} AS {statement}");
    client.batch_execute(&text).await.unwrap();
    let arguments = if arguments.is_empty() { String::new() } else { format!("({arguments})") };
    let explain = format!("EXPLAIN EXECUTE {name}{arguments}");
    let rows = client.query(&explain, &[]).await.unwrap();
    rows.iter().map(|row| row.get::<_, String>(0)).collect::<Vec<_>>().join("\n")
}

/// Every scan of these tables is led by a key: a full scan of an index is no
/// better than one of the table.
fn assert_by_keys(plan: &str, tables: &[&str]) {
    let lines: Vec<&str> = plan.lines().collect();
    for (n, line) in lines.iter().enumerate() {
        let of_table = tables.iter().any(|table| line.contains(&format!(" on {table} ")));
        if line.contains("Scan") && of_table {
            let condition = lines.get(n + 1).map_or("", |next| next.trim());
            let by_key = ["Index Cond", "Recheck Cond", "TID Cond"];
            assert!(by_key.iter().any(|key| condition.starts_with(key)), "{line} in:\n{plan}");
        }
    }
}

#[tokio::test]
async fn the_look_probes_lanes() {
    let client = tables().await;
    let plan = plan(
        &client,
        "look",
        statement(include_str!("../sql/engine/claim.sql"), "scan_heads"),
        "'{a}', '{b}', 0",
    )
    .await;
    assert_by_keys(&plan, &["waiting_tasks"]);
    assert!(plan.contains("waiting_tasks_by_lane"), "{plan}");
}

#[tokio::test]
async fn another_look_starts_at_positions() {
    let client = tables().await;
    let arguments = "'{a}', '{b}', '{0}', '{now}', '{0}'";
    let plan = plan(
        &client,
        "again",
        statement(include_str!("../sql/engine/claim.sql"), "scan_known_heads"),
        arguments,
    )
    .await;
    assert_by_keys(&plan, &["waiting_tasks"]);
    assert!(plan.contains("waiting_tasks_by_lane"), "{plan}");
}

const CLAIM: &str = include_str!("../sql/engine/claim.sql");
const CLAIM_LANE: &str = statement(CLAIM, "claim_lane");
const CLAIM_LANES: &str = statement(CLAIM, "claim_lanes");

#[tokio::test]
async fn the_claim_reads_one_lane() {
    let client = tables().await;
    let plan = plan(&client, "claim", CLAIM_LANE, "1, 1, 10, 'a', 'b', '-infinity', 0, 0").await;
    assert_by_keys(&plan, &["waiting_tasks", "created_tasks", "claims"]);
    assert!(plan.contains("waiting_tasks_by_lane"), "{plan}");
    assert!(!plan.contains("Sort Key: w."), "the index has the order:\n{plan}");
}

#[tokio::test]
async fn the_claim_merges_lanes() {
    let client = tables().await;
    let arguments = "1, 1, 10, '{a}', '{b}', '{-infinity}', '{0}', 0, 20";
    let plan = plan(&client, "claim", CLAIM_LANES, arguments).await;
    assert_by_keys(&plan, &["waiting_tasks", "created_tasks", "claims"]);
    assert!(plan.contains("waiting_tasks_by_lane"), "{plan}");
    assert!(plan.contains("Tid Scan on waiting_tasks"), "{plan}");
    assert!(!plan.contains("Hash Join"), "{plan}");
}

#[tokio::test]
async fn the_record_reads_by_keys() {
    let client = tables().await;
    let arguments = "'{1}','{1}','{0}','{1}','{1}','{0}','{0}','{0}','{0}','{0}','{NULL}','{NULL}','{NULL}','{}'";
    let plan = plan(
        &client,
        "record",
        statement(include_str!("../sql/engine/record.sql"), "record"),
        arguments,
    )
    .await;
    assert_by_keys(&plan, &["created_tasks", "ended_executions", "claims"]);
}

#[tokio::test]
async fn a_heartbeat_does_not_read_history() {
    let client = tables().await;
    let plan = plan(
        &client,
        "beat",
        statement(include_str!("../sql/engine/instances.sql"), "heartbeat"),
        "1",
    )
    .await;
    assert_by_keys(&plan, &["created_tasks", "ended_executions"]);
    assert!(!plan.contains("Seq Scan on waiting_tasks"), "{plan}");
}

/// Whether a queue is paused is asked once a statement, not once a row.
#[tokio::test]
async fn pauses_are_looked_up_once() {
    let client = tables().await;
    let lane = "1, 1, 10, 'a', 'b', '-infinity', 0, 0";
    let lanes = "1, 1, 10, '{a}', '{b}', '{-infinity}', '{0}', 0, 20";
    let again = statement(include_str!("../sql/engine/claim.sql"), "scan_known_heads");
    let look = statement(include_str!("../sql/engine/claim.sql"), "scan_heads");
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

#[tokio::test]
async fn queues_are_counted_in_ranges_of_their_index() {
    let client = tables().await;
    let waiting = statement(include_str!("../sql/readers/queues.sql"), "queues_waiting");
    let plan_of_waiting = plan(&client, "waiting", waiting, "100001, 10000").await;
    assert!(!plan_of_waiting.contains("Seq Scan"), "{plan_of_waiting}");
    assert!(!plan_of_waiting.contains("Sort"), "the index has the order:\n{plan_of_waiting}");
    let counts = plan_of_waiting.matches("(due_at <= now())").count();
    assert_eq!(counts, 1, "a range, not a filter:\n{plan_of_waiting}");
    let running = statement(include_str!("../sql/readers/queues.sql"), "queues_running");
    let plan = plan(&client, "running", running, "").await;
    assert_by_keys(&plan, &["created_tasks", "ended_executions"]);
}

/// Pages that a statement touches, as the server counts them.
async fn pages(client: &Client, name: &str, arguments: &str) -> u64 {
    let explain = format!("EXPLAIN (ANALYZE, BUFFERS, TIMING OFF) EXECUTE {name}({arguments})");
    let rows = client.query(&explain, &[]).await.unwrap();
    // The first count is that of the whole statement; none: no page was touched.
    let first = rows.iter().map(|row| row.get::<_, &str>(0)).find(|line| line.contains("Buffers:"));
    let counts = first.unwrap_or_default().split([' ', '=']);
    counts.filter_map(|word| word.parse::<u64>().ok()).sum()
}

/// A crowd of another queue, class or priority, due or not, adds no more than
/// the depth of an index to what a look and a claim read.
#[tokio::test]
async fn a_crowd_is_never_read_past() {
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
        ("look", statement(include_str!("../sql/engine/claim.sql"), "scan_heads")),
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
async fn a_report_reads_by_keys() {
    let client = tables().await;
    let arguments =
        "'{1}','{1}','{1}','{1}','{1}','{a}','{0}','{1}','{1}','{1}','{0}','{info}','{a}'";
    let plan = plan(
        &client,
        "report",
        statement(include_str!("../sql/engine/report.sql"), "report"),
        arguments,
    )
    .await;
    assert_by_keys(&plan, &["created_tasks", "execution_progress", "execution_logs"]);
}

#[tokio::test]
async fn a_log_is_a_range_of_its_key() {
    let client = tables().await;
    let file = include_str!("../sql/engine/report.sql");
    for name in ["logs", "logs_newest"] {
        let plan = plan(&client, name, statement(file, name), "1, 0, 0, 2, 0, 10").await;
        assert_by_keys(&plan, &["execution_logs l"]);
        assert!(!plan.contains("Sort Key"), "the key has the order:\n{plan}");
        assert!(plan.contains("execution_logs_pkey"), "{plan}");
    }
}

#[tokio::test]
async fn an_answer_is_written_by_keys() {
    let client = tables().await;
    let arguments = "'{1}','{1}','{0}','{killed}'";
    let plan = plan(
        &client,
        "told",
        statement(include_str!("../sql/engine/record.sql"), "record_cancel_responses"),
        arguments,
    )
    .await;
    assert_by_keys(&plan, &["cancel_requests r", "cancellations"]);
}

#[tokio::test]
async fn executions_are_read_by_keys() {
    let client = tables().await;
    let plan = plan(
        &client,
        "executions",
        statement(include_str!("../sql/readers/tasks.sql"), "executions"),
        "1",
    )
    .await;
    let tables = ["ended_executions e", "execution_progress p", "cancellations c"];
    assert_by_keys(&plan, &tables);
}

#[tokio::test]
async fn retention_reads_keys_by_keys() {
    let client = tables().await;
    let lock = plan(
        &client,
        "lock",
        statement(include_str!("../sql/engine/retention.sql"), "lock_keys"),
        "'{1}'",
    )
    .await;
    assert_by_keys(&lock, &["created_tasks", "unique_tasks"]);
    let prune = plan(
        &client,
        "prune",
        statement(include_str!("../sql/engine/retention.sql"), "prune"),
        "'{1}', '{stopped}'",
    )
    .await;
    assert_by_keys(&prune, &["created_tasks", "unique_tasks", "ended_executions"]);
}

/// The statements inside the function for unique tasks, as the server itself
/// explains them while they run.
#[tokio::test]
async fn creation_with_keys_reads_by_keys() {
    let url = TestServer::shared().create_database().await;
    PgStore::connect(&url).await.unwrap().migrate().await.unwrap();
    let (client, mut connection) = tokio_postgres::connect(&url, NoTls).await.unwrap();
    let plans = Arc::new(Mutex::new(String::new()));
    let told = plans.clone();
    tokio::spawn(async move {
        while let Some(Ok(message)) =
            std::future::poll_fn(|context| connection.poll_message(context)).await
        {
            if let AsyncMessage::Notice(notice) = message {
                told.lock().unwrap().push_str(&format!("{}\n", notice.message()));
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
async fn a_flow_is_read_by_its_index() {
    let client = tables().await;
    let arguments = "'order-17', 0, 500, 17";
    let flow = plan(
        &client,
        "flow",
        statement(include_str!("../sql/readers/flow.sql"), "flow"),
        arguments,
    )
    .await;
    assert_by_keys(&flow, &["created_tasks", "waiting_tasks", "ended_executions"]);
    assert!(flow.contains("created_tasks_by_correlation"), "{flow}");
    let executions = statement(include_str!("../sql/readers/flow.sql"), "flow_executions");
    let executions = plan(&client, "executions", executions, "'{1,2}'").await;
    assert_by_keys(&executions, &["ended_executions"]);
}

#[tokio::test]
async fn only_due_schedules_are_read() {
    let client = tables().await;
    let plan = plan(
        &client,
        "due",
        statement(include_str!("../sql/schedules/schedules.sql"), "due"),
        "100",
    )
    .await;
    assert_by_keys(&plan, &["schedules", "created_tasks", "ended_executions", "waiting_tasks"]);
    assert!(plan.contains("schedules_by_next_at"), "{plan}");
    assert!(!plan.contains("Sort"), "the index has the order:\n{plan}");
    let beat = statement(include_str!("../sql/engine/instances.sql"), "heartbeat");
    let plan = self::plan(&client, "beat", beat, "1").await;
    assert!(plan.contains("schedules_by_next_at"), "{plan}");
}

#[tokio::test]
async fn schedules_are_fired_by_keys() {
    let client = tables().await;
    let lock = statement(include_str!("../sql/schedules/schedules.sql"), "lock");
    let lock = plan(&client, "lock", lock, "'{1}', '{1}', '{NULL}'").await;
    assert_by_keys(&lock, &["schedules", "created_tasks", "ended_executions"]);
    let fire = statement(include_str!("../sql/schedules/schedules.sql"), "fire");
    let fire =
        plan(&client, "fire", fire, "'{1}', '{now}', '{now}', '{1}', '{1}', '{now}', '{1}', 99")
            .await;
    assert_by_keys(&fire, &["schedules", "fired_slots"]);
    let skip = statement(include_str!("../sql/schedules/schedules.sql"), "skip");
    let skip = plan(&client, "skip", skip, "'{1}', '{manual}', '{now}', '{now}', '{1}', 99").await;
    assert_by_keys(&skip, &["schedules", "schedule_events"]);
}

/// Those who watch read by keys, however much history there is.
#[tokio::test]
async fn watching_reads_no_history() {
    let client = tables().await;
    let big = ["created_tasks", "ended_executions", "ended_executions near", "waiting_tasks w"];
    for (name, statement, arguments) in [
        ("held", statement(include_str!("../sql/readers/activity.sql"), "activity_held"), ""),
        (
            "next",
            statement(include_str!("../sql/readers/activity.sql"), "activity_next"),
            "1, 10, 0, 100",
        ),
        (
            "endings",
            statement(include_str!("../sql/readers/activity.sql"), "endings"),
            "'{1}', '{2}', 10, 1000",
        ),
        (
            "ahead",
            statement(include_str!("../sql/readers/activity.sql"), "queue_position"),
            "1, '{a}', '{b}', 10",
        ),
        ("locker", statement(include_str!("../sql/readers/activity.sql"), "locked_by"), "1"),
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
        statement(include_str!("../sql/readers/activity.sql"), "activity_newest"),
        "",
    )
    .await;
    assert!(newest.contains("Limit") && newest.contains("Backward"), "{newest}");
    let failure_counts = plan(
        &client,
        "failure_counts",
        statement(include_str!("../sql/readers/activity.sql"), "failure_counts"),
        "10",
    )
    .await;
    assert!(failure_counts.contains("ended_executions_to_look_at"), "{failure_counts}");
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
        statement(include_str!("../sql/operators/checks.sql"), "lanes"),
        "1000",
    )
    .await;
    assert!(lanes.contains("waiting_tasks_by_lane"), "{lanes}");
    let failed = plan(
        &client,
        "failed",
        statement(include_str!("../sql/operators/checks.sql"), "failed"),
        "1000",
    )
    .await;
    assert!(failed.contains("Index Scan Backward using ended_executions_to_look_at"), "{failed}");
    let below = failed.split_once("Limit").map_or("", |(_, below)| below);
    let below = below.lines().nth(1).unwrap_or_default();
    assert!(below.contains("Index Scan Backward"), "it stops at its limit: {failed}");
}

#[tokio::test]
async fn a_page_of_an_export_is_a_range_of_keys() {
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
        ("tasks", statement(include_str!("../sql/operators/export.sql"), "tasks")),
        ("executions", statement(include_str!("../sql/operators/export.sql"), "executions")),
        ("late_results", statement(include_str!("../sql/operators/export.sql"), "late_results")),
        ("progress", statement(include_str!("../sql/operators/export.sql"), "progress")),
        ("logs", statement(include_str!("../sql/operators/export.sql"), "logs")),
        ("cancellations", statement(include_str!("../sql/operators/export.sql"), "cancellations")),
    ] {
        let plan = plan(&client, name, statement, "1, 200").await;
        assert_by_keys(&plan, &tables);
    }
}
/// Each part of a source is read by its key, from its end, and no further than asked.
#[tokio::test]
async fn a_step_of_a_search_reads_by_keys() {
    let client = tables().await;
    let file = include_str!("../sql/readers/scan.sql");
    let tables = ["created_tasks", "ended_executions", "waiting_tasks"];
    for (source, arguments) in [
        ("all", ""),
        ("flow", ", 'order-17', 17"),
        ("ids", ", '{1,2}'"),
        ("status", ", true, true, '{failed}'"),
    ] {
        let name = format!("scan_bound_{source}");
        let arguments_of_bound = format!("1, 100, 10{arguments}");
        let bound = plan(&client, &name, statement(file, &name), &arguments_of_bound).await;
        assert_by_keys(&bound, &tables);
        if source == "all" {
            assert!(!bound.contains("Sort"), "the index has the order:\n{bound}");
        }
        let name = format!("scan_{source}");
        let arguments =
            format!("1, 100, 10, '{{a}}', null, null, null, now(), now(), true, false{arguments}");
        let step = plan(&client, &name, statement(file, &name), &arguments).await;
        assert_by_keys(&step, &tables);
        assert!(!step.contains("hashed SubPlan"), "history is not read whole:\n{step}");
    }
}

#[tokio::test]
async fn seeking_by_time_probes_the_key() {
    let client = tables().await;
    let statement = statement(include_str!("../sql/readers/scan.sql"), "creation_times");
    let plan = plan(&client, "creation_times", statement, "'{1, 2, 3}'").await;
    assert_by_keys(&plan, &["created_tasks"]);
    assert!(plan.contains("Index Scan Backward using created_tasks_pkey"), "{plan}");
}

#[tokio::test]
async fn an_edit_and_a_removal_read_by_keys() {
    let client = tables().await;
    let tables = ["created_tasks", "ended_executions", "waiting_tasks"];
    let edit = statement(include_str!("../sql/operators/tasks.sql"), "edit");
    let arguments = "1, '{}', null, 0, 1, 'q'";
    assert_by_keys(&plan(&client, "edit", edit, arguments).await, &tables);
    let prune = statement(include_str!("../sql/engine/retention.sql"), "prune");
    assert_by_keys(&plan(&client, "prune", prune, "'{1}', '{failed}'").await, &tables);
}

#[tokio::test]
async fn a_dashboard_reads_by_keys() {
    let client = tables().await;
    let tables = ["audit", "tokens", "figures", "ended_logins"];
    for (name, statement, arguments) in [
        (
            "audit_page",
            statement(include_str!("../sql/operators/audit.sql"), "audit_page"),
            "100, 10, null, null, null, null, null",
        ),
        (
            "login_is_ended",
            statement(include_str!("../sql/operators/logins.sql"), "login_is_ended"),
            "''",
        ),
        (
            "token_by_hash",
            statement(include_str!("../sql/operators/tokens.sql"), "token_by_hash"),
            "'', 1",
        ),
        (
            "token_touch",
            statement(include_str!("../sql/operators/tokens.sql"), "token_touch"),
            "1, 1",
        ),
        (
            "token_revoke",
            statement(include_str!("../sql/operators/tokens.sql"), "token_revoke"),
            "'a'",
        ),
        ("rollups", statement(include_str!("../sql/engine/rollups.sql"), "rollups"), "3600, 60"),
        (
            "figures_prune",
            statement(include_str!("../sql/engine/rollups.sql"), "prune_rollups"),
            "1, 10",
        ),
    ] {
        let plan = plan(&client, name, statement, arguments).await;
        assert!(plan.contains("Scan"), "{name}:\n{plan}");
        assert_by_keys(&plan, &tables);
    }
    let statement = statement(include_str!("../sql/engine/rollups.sql"), "write_rollups");
    let arguments =
        "1, '{1}', '{a}', '{0}', '{1}', '{1}', '{1}', '{1}', '{1}', '{1}', '{1}', '{1}'";
    let plan = plan(&client, "figures", statement, arguments).await;
    assert!(plan.contains("Conflict Arbiter Indexes: figures_pkey"), "{plan}");
}

#[tokio::test]
async fn whether_attempts_completed_their_tasks_is_asked_by_the_key() {
    let client = tables().await;
    let statement = statement(include_str!("../sql/engine/complete.sql"), "completed");
    let plan = plan(&client, "completed", statement, "'{1}', '{1}', '{1}'").await;
    assert_by_keys(&plan, &["ended_executions"]);
}

/// Which lives history names is found by the oldest tasks, not by all.
#[tokio::test]
async fn old_lives_are_found_by_keys() {
    let client = tables().await;
    let statement = statement(include_str!("../sql/engine/instances.sql"), "prune_instances");
    let plan = plan(&client, "lives", statement, "1, 1").await;
    assert_by_keys(&plan, &["ended_executions"]);
    assert!(plan.contains("Index Scan using created_tasks_pkey"), "{plan}");
}

/// Fills a ledger with tasks that have ended: one of a thousand failed, the others
/// did their work.
const ENDED: &str = "
    INSERT INTO task_engine.created_tasks
      (priority, scheduled_at, created_at, task_class, queue, task_parameters, context)
    SELECT 0, now(), now(), 'c', 'default', '{}', '{}' FROM generate_series(1, 50000);
    INSERT INTO task_engine.ended_executions
      (task_id, attempt, retry_number, claim_id, started_at, stopped_at, ends_task, result, error)
    SELECT n, 1, 0, 1, now(), now(),
      CASE WHEN n % 1000 = 0 THEN 'failed' ELSE 'stopped' END::task_engine.task_status,
      CASE WHEN n % 1000 > 0 THEN to_jsonb(n) END,
      CASE WHEN n % 1000 = 0 THEN '{\"exception\": \"E\", \"message\": \"m\"}'::jsonb END
    FROM generate_series(1, 50000) AS n;
    ANALYZE";

/// A program that reads by SQL has the planner's own settings.
async fn reader() -> Client {
    let client = tables().await;
    client.batch_execute("RESET ALL").await.unwrap();
    client.batch_execute(ENDED).await.unwrap();
    client
}

async fn touched(client: &Client, statement: &str) -> u64 {
    let name = format!("statement_{}", number_of(statement));
    client.batch_execute(&format!("PREPARE {name}(int) AS {statement}")).await.unwrap();
    pages(client, &name, "0").await
}

fn number_of(statement: &str) -> usize {
    statement.bytes().fold(7, |sum, byte| (sum * 31 + usize::from(byte)) % 1_000_003)
}

#[tokio::test]
async fn view_is_read_by_id_and_page() {
    let client = reader().await;
    for statement in [
        "SELECT * FROM task_engine.tasks WHERE id = 49000",
        "SELECT * FROM task_engine.tasks ORDER BY id DESC LIMIT 20",
        "SELECT * FROM task_engine.tasks WHERE id < 30000 ORDER BY id DESC LIMIT 20",
        "SELECT * FROM task_engine.task_executions WHERE task_id = 49000 ORDER BY id",
    ] {
        let pages = touched(&client, statement).await;
        assert!(pages < 1000, "{pages} pages: {statement}");
    }
}

#[tokio::test]
async fn tasks_with_status_reads_no_history() {
    let client = reader().await;
    for (status, found) in [("failed", 20), ("stopped", 20), ("waiting", 0), ("cancelled", 0)] {
        let statement = format!("SELECT id FROM task_engine.tasks_with_status('{status}', 20)");
        // More than five times, so that the function has its generic plan.
        for _ in 0..7 {
            let rows = client.query(&statement, &[]).await.unwrap();
            assert_eq!(rows.len(), found, "{status}");
        }
        let pages = touched(&client, &statement).await;
        assert!(pages < 1500, "{pages} pages: {statement}");
    }
}

#[tokio::test]
async fn tasks_with_status_agrees_with_the_view() {
    let client = reader().await;
    // An operator sent three failed ones back to wait; one failed again.
    client
        .batch_execute(
            "INSERT INTO task_engine.waiting_tasks
               SELECT id, now(), 0, 2, 0, 'default', 'c' FROM task_engine.created_tasks
               WHERE id IN (50000, 48000);
             INSERT INTO task_engine.ended_executions
               (task_id, attempt, retry_number, stopped_at, ends_task, error)
             VALUES (46000, 2, 0, now(), 'failed', '{}')",
        )
        .await
        .unwrap();
    for status in ["waiting", "running", "stopped", "failed", "cancelled"] {
        let ids = async |sql: String| -> Vec<i64> {
            let rows = client.query(&sql, &[]).await.unwrap();
            rows.iter().map(|row| row.get(0)).collect()
        };
        let page = ids(format!(
            "SELECT id FROM task_engine.tasks_with_status('{status}', 10, before_id => 49999)"
        ));
        let expected = ids(format!(
            "SELECT id FROM task_engine.tasks WHERE status = '{status}' AND id < 49999
             ORDER BY id DESC LIMIT 10"
        ));
        assert_eq!(page.await, expected.await, "{status}");
    }
}
