//! Hot statements search; they never read a whole table.

mod common;

use common::File;
use rusqlite::Connection;

macro_rules! sql {
    ($name:literal) => {
        ($name, include_str!(concat!("../sql/", $name, ".sql")))
    };
}

fn plan(connection: &Connection, statement: &str) -> Vec<String> {
    let mut explained = connection.prepare(&format!("EXPLAIN QUERY PLAN {statement}")).unwrap();
    let parameters = vec![rusqlite::types::Null; explained.parameter_count()];
    let steps = explained.query_map(rusqlite::params_from_iter(parameters), |row| row.get(3));
    steps.unwrap().collect::<Result<_, _>>().unwrap()
}

#[tokio::test]
async fn no_hot_statement_scans_a_table() {
    let file = File::with_tables().await;
    let connection = file.connect();
    for (name, statement) in [
        sql!("wait_again"),
        sql!("claim_lanes"),
        sql!("claim_heads"),
        sql!("task_exists"),
        sql!("tasks_exist"),
        sql!("task_asked"),
        sql!("claim_delete"),
        sql!("claim_take_back"),
        sql!("taken_task"),
        sql!("end_attempt"),
        sql!("ended_by"),
        sql!("late_result"),
        sql!("waiting_one"),
        sql!("waiting_delete"),
        sql!("waiting_delete_due_at"),
        sql!("waiting_delete_due_before"),
        sql!("last_ending"),
        sql!("instance_alive"),
        sql!("instance_heartbeat"),
        sql!("pulse_next_class"),
        sql!("task_executions"),
        sql!("task_late_results"),
        sql!("task_cancel_requested"),
        sql!("unique_take"),
        sql!("unique_holder"),
        sql!("unique_give"),
        sql!("unique_name"),
        sql!("replace_task"),
        sql!("prune_unique_tasks"),
        sql!("prune_ended_executions"),
        sql!("prune_late_results"),
        sql!("prune_cancel_requests"),
        sql!("prune_fired_slots"),
        sql!("endings"),
        sql!("activity_next"),
        sql!("activity_newest"),
        sql!("queue_position_of"),
        sql!("queue_position_count"),
        sql!("schedules_due"),
        sql!("schedules_next"),
        sql!("schedule"),
        sql!("schedule_as_seen"),
        sql!("schedule_move"),
        sql!("schedule_update"),
        sql!("fired_slots"),
        sql!("fired_slots_forget"),
        sql!("schedule_events"),
        sql!("schedule_event_extend"),
        sql!("schedule_events_forget"),
        sql!("queue_is_paused"),
        sql!("queues_next_lane"),
        sql!("queues_count"),
        sql!("report_line"),
        sql!("report_progress"),
        sql!("logs"),
        sql!("logs_newest"),
        sql!("execution_said"),
        sql!("cancellation"),
        sql!("prune_execution_logs"),
        sql!("prune_execution_progress"),
        sql!("prune_cancellations"),
        sql!("flow_ids"),
        sql!("flow_task"),
        sql!("flow_executions"),
        sql!("audit_page"),
        sql!("audit_prune"),
        sql!("login_is_ended"),
        sql!("database_key"),
        sql!("token_by_hash"),
        sql!("token_revoke"),
        sql!("token_touch"),
        sql!("creation_times"),
        sql!("last_times"),
        sql!("figures"),
        sql!("rollups"),
        sql!("figures_prune"),
    ] {
        let plan = plan(&connection, statement);
        let scans: Vec<_> = plan
            .iter()
            .filter(|step| step.contains("SCAN task_engine_") || step.contains("SCAN waiting"))
            .collect();
        assert!(scans.is_empty(), "{name}: {plan:#?}");
    }
}

#[tokio::test]
async fn pages_of_what_went_wrong_use_their_index() {
    let file = File::with_tables().await;
    let connection = file.connect();
    for (name, statement) in [sql!("page_unhappy"), sql!("prune_unhappy")] {
        let plan = plan(&connection, statement).join("\n");
        assert!(plan.contains("task_engine_unhappy_endings (ends_task=?"), "{name}: {plan}");
        assert!(!plan.contains("FOR ORDER BY"), "{name}: {plan}");
    }
}

#[tokio::test]
async fn lanes_are_read_in_claim_order_without_sorting() {
    let file = File::with_tables().await;
    let (_, statement) = sql!("claim_heads");
    let plan = plan(&file.connect(), statement).join("\n");
    assert!(
        plan.contains(
            "task_engine_waiting_lanes (queue=? AND task_class=? AND priority=? AND due_at>?)"
        ),
        "{plan}"
    );
    assert!(!plan.contains("FOR ORDER BY"), "{plan}");
}

#[tokio::test]
async fn a_claim_deletes_where_it_has_read() {
    let file = File::with_tables().await;
    for ((name, statement), end) in [
        (sql!("waiting_delete_due_at"), "due_at=? AND rowid<?)"),
        (sql!("waiting_delete_due_before"), "due_at<?)"),
    ] {
        let plan = plan(&file.connect(), statement).join("\n");
        let lane = "task_engine_waiting_lanes (queue=? AND task_class=? AND priority=? AND ";
        assert!(plan.contains(&format!("{lane}{end}")), "{name}: {plan}");
    }
}

#[tokio::test]
async fn classes_that_wait_are_found_by_jumps() {
    let file = File::with_tables().await;
    let (_, statement) = sql!("pulse_next_class");
    let plan = plan(&file.connect(), statement).join("\n");
    assert!(plan.contains("(queue=? AND task_class>?)"), "{plan}");
    assert!(plan.contains("(queue>?)"), "{plan}");
    assert!(!plan.contains("FOR ORDER BY"), "{plan}");
}

#[tokio::test]
async fn a_flow_is_found_by_its_index() {
    let file = File::with_tables().await;
    let (_, statement) = sql!("flow_ids");
    let plan = plan(&file.connect(), statement).join("\n");
    assert!(plan.contains("task_engine_created_by_correlation (<expr>=? AND rowid>?)"), "{plan}");
}

#[tokio::test]
async fn only_due_schedules_are_read() {
    let file = File::with_tables().await;
    for (name, statement) in [sql!("schedules_due"), sql!("schedules_next")] {
        let plan = plan(&file.connect(), statement).join("\n");
        assert!(plan.contains("task_engine_schedules_by_next_at (next_at"), "{name}: {plan}");
        assert!(!plan.contains("FOR ORDER BY"), "{name}: {plan}");
    }
}

#[tokio::test]
async fn checks_and_exports_search_by_keys() {
    let file = File::with_tables().await;
    let connection = file.connect();
    for (name, statement) in [
        sql!("checks/failed"),
        sql!("checks/first_due"),
        sql!("export/executions"),
        sql!("export/late_results"),
        sql!("export/progress"),
        sql!("export/logs"),
        sql!("export/cancellations"),
        sql!("export/fired_slots"),
        sql!("export/schedule_events"),
    ] {
        for step in plan(&connection, statement) {
            let scans = step.contains("SCAN task_engine") || step.contains("SCAN wish");
            assert!(!scans && !step.contains("TEMP B-TREE FOR ORDER"), "{name}: {step}");
        }
    }
}

/// Each place is read by its key from its end, and how far a
/// step goes is told without sorting. The step itself has few rows.
#[tokio::test]
async fn a_step_of_a_search_reads_by_keys() {
    let file = File::with_tables().await;
    let connection = file.connect();
    let failure_counts = sql!("scan_unhappy").1.replace("/* status */", "failed");
    for (name, base, sorts) in [
        ("all", sql!("scan_all").1.to_owned(), false),
        ("waiting", sql!("scan_waiting").1.to_owned(), false),
        ("failure_counts", failure_counts.clone(), false),
        ("two", format!("{}UNION ALL\n{failure_counts}", sql!("scan_waiting").1), false),
        ("flow", sql!("scan_flow").1.to_owned(), false),
        ("ids", sql!("scan_ids").1.replace("/* ids */", "1, 2"), true),
    ] {
        for (statement, text) in [sql!("scan_bound"), sql!("scan")] {
            let text = text.replace("/* base */", &base);
            let plan = plan(&connection, &text).join("\n");
            assert!(!plan.contains("SCAN task_engine_"), "{name}: {plan}");
            assert!(!plan.contains("SCAN ended"), "{name}: {plan}");
            let may_sort = sorts || statement == "scan";
            assert!(may_sort || !plan.contains("FOR ORDER BY"), "{name}: {plan}");
        }
    }
}
