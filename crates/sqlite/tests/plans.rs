//! Hot statements search; they never read a whole table.

mod common;

use common::File;
use rusqlite::Connection;
use task_engine_store::sql::statement;

macro_rules! sql {
    ($file:literal, $name:literal) => {
        ($name, statement(include_str!(concat!("../sql/", $file, ".sql")), $name))
    };
}

fn plan(connection: &Connection, statement: &str) -> Vec<String> {
    let mut explained = connection.prepare(&format!("EXPLAIN QUERY PLAN {statement}")).unwrap();
    let parameters = vec![rusqlite::types::Null; explained.parameter_count()];
    let steps = explained.query_map(rusqlite::params_from_iter(parameters), |row| row.get(3));
    steps.unwrap().collect::<Result<_, _>>().unwrap()
}

#[tokio::test]
async fn hot_statements_scan_no_table() {
    let file = File::with_tables().await;
    let connection = file.connect();
    for (name, statement) in [
        sql!("engine/record", "requeue"),
        sql!("engine/claim", "claim_lanes"),
        sql!("engine/claim", "claim_heads"),
        sql!("engine/record", "task_exists"),
        sql!("engine/record", "tasks_exist"),
        sql!("readers/tasks", "task_request"),
        sql!("engine/record", "claim_delete"),
        sql!("engine/recover", "reclaim_claim"),
        sql!("engine/recover", "reclaimed_task"),
        sql!("engine/record", "end_attempt"),
        sql!("engine/record", "ended_by"),
        sql!("engine/record", "late_result"),
        sql!("operators/tasks", "waiting_one"),
        sql!("operators/tasks", "waiting_delete"),
        sql!("engine/claim", "waiting_delete_due_at"),
        sql!("engine/claim", "waiting_delete_due_before"),
        sql!("operators/tasks", "last_ending"),
        sql!("engine/claim", "instance_alive"),
        sql!("engine/instances", "instance_heartbeat"),
        sql!("engine/instances", "next_waiting_class"),
        sql!("readers/tasks", "task_executions"),
        sql!("readers/tasks", "task_late_results"),
        sql!("readers/tasks", "task_cancel_requested"),
        sql!("engine/create", "unique_take"),
        sql!("engine/create", "unique_holder"),
        sql!("engine/create", "unique_assign"),
        sql!("engine/create", "unique_name"),
        sql!("engine/create", "replace_task"),
        sql!("operators/tasks", "prune_unique_tasks"),
        sql!("operators/tasks", "prune_ended_executions"),
        sql!("operators/tasks", "prune_late_results"),
        sql!("operators/tasks", "prune_cancel_requests"),
        sql!("operators/tasks", "prune_fired_slots"),
        sql!("readers/activity", "endings"),
        sql!("readers/activity", "activity_next"),
        sql!("readers/activity", "activity_newest"),
        sql!("readers/activity", "queue_position_of"),
        sql!("readers/activity", "queue_position_count"),
        sql!("schedules/schedules", "schedules_due"),
        sql!("schedules/schedules", "schedules_next"),
        sql!("schedules/schedules", "schedule"),
        sql!("schedules/schedules", "schedule_unchanged"),
        sql!("schedules/schedules", "schedule_move"),
        sql!("schedules/schedules", "schedule_update"),
        sql!("schedules/schedules", "fired_slots"),
        sql!("schedules/schedules", "fired_slots_delete_old"),
        sql!("schedules/schedules", "schedule_events"),
        sql!("schedules/schedules", "schedule_event_extend"),
        sql!("schedules/schedules", "schedule_events_delete_old"),
        sql!("readers/queues", "queue_is_paused"),
        sql!("readers/queues", "queues_next_lane"),
        sql!("readers/queues", "queues_count"),
        sql!("engine/progress", "report_line"),
        sql!("engine/progress", "report_progress"),
        sql!("engine/progress", "logs"),
        sql!("engine/progress", "logs_newest"),
        sql!("engine/progress", "execution_reports"),
        sql!("engine/progress", "cancellation"),
        sql!("operators/tasks", "prune_execution_logs"),
        sql!("operators/tasks", "prune_execution_progress"),
        sql!("operators/tasks", "prune_cancellations"),
        sql!("readers/flow", "flow_ids"),
        sql!("readers/flow", "flow_task"),
        sql!("readers/flow", "flow_executions"),
        sql!("operators/audit", "audit_page"),
        sql!("operators/audit", "prune_audit"),
        sql!("operators/logins", "login_is_ended"),
        sql!("operators/logins", "database_key"),
        sql!("operators/tokens", "token_by_hash"),
        sql!("operators/tokens", "token_revoke"),
        sql!("operators/tokens", "token_touch"),
        sql!("readers/scan", "creation_times"),
        sql!("readers/scan", "last_times"),
        sql!("engine/rollups", "write_rollups"),
        sql!("engine/rollups", "rollups"),
        sql!("engine/rollups", "prune_rollups"),
        sql!("engine/durable", "step_insert"),
        sql!("engine/durable", "step"),
        sql!("engine/durable", "steps"),
        sql!("engine/durable", "dependency_insert"),
        sql!("engine/durable", "steps_copy"),
        sql!("engine/durable", "signals_copy"),
        sql!("engine/durable", "dependencies_copy"),
        sql!("engine/durable", "signal_insert"),
        sql!("engine/durable", "signal"),
        sql!("engine/durable", "signals"),
        sql!("engine/durable", "signal_arrived"),
        sql!("engine/durable", "next_unfinished_child"),
        sql!("engine/durable", "suspended_insert"),
        sql!("engine/durable", "suspended"),
        sql!("engine/durable", "suspended_for_signal"),
        sql!("engine/durable", "suspended_watching"),
        sql!("engine/durable", "suspended_after"),
        sql!("engine/durable", "suspended_watch"),
        sql!("engine/durable", "suspended_delete"),
        sql!("engine/durable", "child_outcome"),
        sql!("operators/tasks", "prune_steps"),
        sql!("operators/tasks", "prune_signals"),
        sql!("operators/tasks", "prune_task_dependencies"),
        sql!("operators/tasks", "prune_suspended_tasks"),
        sql!("operators/tasks", "is_kept_child"),
        sql!("engine/flows", "existing_task"),
        sql!("engine/flows", "await_task"),
        sql!("engine/flows", "newest_end"),
        sql!("engine/flows", "flow_insert"),
        sql!("engine/flows", "depend"),
        sql!("engine/flows", "block"),
        sql!("engine/flows", "wait_blocked"),
        sql!("engine/flows", "blocked"),
        sql!("engine/flows", "blocked_on"),
        sql!("engine/flows", "blocked_needing"),
        sql!("engine/flows", "block_on"),
        sql!("engine/flows", "block_on_reopened"),
        sql!("engine/flows", "next_dependency"),
        sql!("engine/flows", "failed_dependency"),
        sql!("engine/flows", "last_dependency"),
        sql!("engine/flows", "dependency_states"),
        sql!("engine/flows", "name_in_flow"),
        sql!("engine/flows", "has_dependencies"),
        sql!("engine/flows", "has_dependents"),
        sql!("engine/flows", "reopen"),
        sql!("engine/flows", "needing"),
        sql!("engine/flows", "dependents_to_extend"),
        sql!("engine/flows", "needed_by"),
        sql!("engine/flows", "flow_delete"),
        sql!("engine/flows", "newest_flow"),
        sql!("readers/dependencies", "dependencies"),
        sql!("readers/dependencies", "dependents"),
        sql!("readers/dependencies", "blocked_tasks"),
        sql!("readers/dependencies", "flow_of"),
        sql!("readers/dependencies", "flow_states"),
        sql!("operators/tasks", "prune_reopened_tasks"),
        sql!("engine/limits", "limit_exists"),
        sql!("engine/limits", "class_names_limits"),
        sql!("engine/limits", "limited_claim_lanes"),
        sql!("engine/limits", "move_heads"),
        sql!("engine/limits", "move_tails"),
        sql!("engine/limits", "lane_rows"),
        sql!("engine/limits", "move"),
        sql!("engine/limits", "next_lane"),
        sql!("engine/limits", "lane_heads"),
        sql!("engine/limits", "lane_task"),
        sql!("engine/limits", "waiting_holder"),
        sql!("engine/limits", "key_total"),
        sql!("engine/limits", "key_holders"),
        sql!("engine/limits", "key_write"),
        sql!("engine/limits", "starts"),
        sql!("engine/limits", "last_start"),
        sql!("engine/limits", "start_insert"),
        sql!("engine/limits", "correct_starts"),
        sql!("engine/limits", "starts_delete"),
        sql!("engine/limits", "closed_key"),
        sql!("engine/limits", "waiting_take"),
        sql!("engine/limits", "close_key"),
        sql!("engine/limits", "prune_keys"),
        sql!("engine/limits", "prune_starts"),
        sql!("operators/limits", "limit_update"),
        sql!("operators/limits", "limit_delete"),
        sql!("operators/limits", "limit_starts_delete"),
        sql!("operators/limits", "open_key"),
        sql!("operators/limits", "closed_keys"),
        sql!("readers/limits", "next_lane"),
        sql!("readers/limits", "lane_count"),
        sql!("readers/limits", "keys"),
        sql!("readers/limits", "task_keys"),
        sql!("readers/limits", "written_at"),
    ] {
        let plan = plan(&connection, statement);
        let scans: Vec<_> = plan
            .iter()
            .filter(|step| {
                let tables = [
                    "task_engine_",
                    "waiting",
                    "step",
                    "signal",
                    "dependency",
                    "suspended",
                    "state",
                ];
                tables.iter().any(|table| step.contains(&format!("SCAN {table}")))
            })
            .collect();
        assert!(scans.is_empty(), "{name}: {plan:#?}");
    }
}

#[tokio::test]
async fn failed_task_pages_use_index() {
    let file = File::with_tables().await;
    let connection = file.connect();
    for (name, statement) in [
        sql!("readers/tasks", "page_failed_or_cancelled"),
        sql!("operators/tasks", "prune_failed_or_cancelled"),
    ] {
        let plan = plan(&connection, statement).join("\n");
        assert!(plan.contains("task_engine_failed_or_cancelled (ends_task=?"), "{name}: {plan}");
        assert!(!plan.contains("FOR ORDER BY"), "{name}: {plan}");
    }
}

#[tokio::test]
async fn lanes_are_read_without_sorting() {
    let file = File::with_tables().await;
    let (_, statement) = sql!("engine/claim", "claim_heads");
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
async fn limited_lanes_are_read_without_sorting() {
    let file = File::with_tables().await;
    for ((name, statement), range) in [
        (sql!("engine/limits", "next_lane"), "priority=? AND lane_key>?)"),
        (sql!("engine/limits", "lane_rows"), "priority=? AND lane_key=?)"),
        (sql!("engine/limits", "lane_heads"), "priority=? AND lane_key=?)"),
        (sql!("readers/limits", "next_lane"), "priority=? AND lane_key>?)"),
        (sql!("readers/limits", "lane_count"), "priority=? AND lane_key=?)"),
    ] {
        let plan = plan(&file.connect(), statement).join("\n");
        let lane = "task_engine_waiting_limited_lanes (queue=? AND task_class=? AND ";
        assert!(plan.contains(&format!("{lane}{range}")), "{name}: {plan}");
        assert!(!plan.contains("FOR ORDER BY"), "{name}: {plan}");
    }
    for (name, statement) in [
        sql!("engine/limits", "move_heads"),
        sql!("engine/limits", "move_tails"),
        sql!("engine/limits", "starts"),
        sql!("engine/limits", "last_start"),
    ] {
        let plan = plan(&file.connect(), statement).join("\n");
        assert!(!plan.contains("FOR ORDER BY"), "{name}: {plan}");
    }
}

#[tokio::test]
async fn claim_deletes_by_index_range() {
    let file = File::with_tables().await;
    for ((name, statement), end) in [
        (sql!("engine/claim", "waiting_delete_due_at"), "due_at=? AND rowid<?)"),
        (sql!("engine/claim", "waiting_delete_due_before"), "due_at<?)"),
    ] {
        let plan = plan(&file.connect(), statement).join("\n");
        let lane = "task_engine_waiting_lanes (queue=? AND task_class=? AND priority=? AND ";
        assert!(plan.contains(&format!("{lane}{end}")), "{name}: {plan}");
    }
}

#[tokio::test]
async fn waiting_classes_are_found_by_seeks() {
    let file = File::with_tables().await;
    let (_, statement) = sql!("engine/instances", "next_waiting_class");
    let plan = plan(&file.connect(), statement).join("\n");
    assert!(plan.contains("(queue=? AND task_class>?)"), "{plan}");
    assert!(plan.contains("(queue>?)"), "{plan}");
    assert!(!plan.contains("FOR ORDER BY"), "{plan}");
}

#[tokio::test]
async fn flow_is_read_by_index() {
    let file = File::with_tables().await;
    let (_, statement) = sql!("readers/flow", "flow_ids");
    let plan = plan(&file.connect(), statement).join("\n");
    assert!(plan.contains("task_engine_created_by_correlation (<expr>=? AND rowid>?)"), "{plan}");
}

#[tokio::test]
async fn only_due_schedules_are_read() {
    let file = File::with_tables().await;
    for (name, statement) in [
        sql!("schedules/schedules", "schedules_due"),
        sql!("schedules/schedules", "schedules_next"),
    ] {
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
        sql!("operators/checks", "failed"),
        sql!("operators/checks", "first_due"),
        sql!("operators/export", "executions"),
        sql!("operators/export", "late_results"),
        sql!("operators/export", "progress"),
        sql!("operators/export", "logs"),
        sql!("operators/export", "cancellations"),
        sql!("operators/export", "fired_slots"),
        sql!("operators/export", "schedule_events"),
    ] {
        for step in plan(&connection, statement) {
            let scans = step.contains("SCAN task_engine") || step.contains("SCAN request");
            assert!(!scans && !step.contains("TEMP B-TREE FOR ORDER"), "{name}: {step}");
        }
    }
}

/// Each part of a source is read by its key from its end, and the bound of a step is found
/// without sorting. Two sorts remain: a list of ids has its own order, and running tasks are
/// read from claims, which have no order by task; there are at most as many as workers. The
/// step itself sorts the few rows that it returns.
#[tokio::test]
async fn search_step_reads_by_keys() {
    let file = File::with_tables().await;
    let connection = file.connect();
    let scan = include_str!("../sql/readers/scan.sql");
    for (source, sorts) in [("all", 0), ("flow", 0), ("ids", 1), ("status", 1)] {
        for (name, is_bound) in
            [(format!("scan_bound_{source}"), true), (format!("scan_{source}"), false)]
        {
            let plan = plan(&connection, statement(scan, &name)).join("\n");
            assert!(!plan.contains("SCAN task_engine_"), "{name}: {plan}");
            assert!(!plan.contains("SCAN ended"), "{name}: {plan}");
            if is_bound {
                let found = plan.matches("TEMP B-TREE FOR ORDER BY").count();
                assert!(found <= sorts, "{name}: {plan}");
            }
            if source == "status" {
                assert!(plan.contains("task_engine_failed_or_cancelled"), "{name}: {plan}");
            }
        }
    }
}

/// A call may have thousands of children: the next one is found without reading the others,
/// and the parents of an ended child by their index.
#[tokio::test]
async fn children_and_parents_are_found_by_index() {
    let file = File::with_tables().await;
    let connection = file.connect();
    for ((name, statement), index) in [
        (
            sql!("engine/durable", "next_unfinished_child"),
            "PRIMARY KEY (task_id=? AND depends_on>?)",
        ),
        (
            sql!("engine/durable", "suspended_watching"),
            "task_engine_suspended_tasks_by_watched (watching=?)",
        ),
        (
            sql!("operators/tasks", "is_kept_child"),
            "task_engine_task_dependencies_by_child (depends_on=?)",
        ),
    ] {
        let plan = plan(&connection, statement).join("\n");
        assert!(plan.contains(index), "{name}: {plan}");
        assert!(!plan.contains("FOR ORDER BY"), "{name}: {plan}");
    }
}

/// A task may depend on thousands, and thousands may depend on one: each look reads only what
/// it needs.
#[tokio::test]
async fn dependencies_are_found_by_index() {
    let file = File::with_tables().await;
    let connection = file.connect();
    let range = "SEARCH dependency USING PRIMARY KEY (task_id=? AND depends_on>?)";
    let child = "task_engine_task_dependencies_by_child (depends_on=?)";
    for ((name, statement), index) in [
        (sql!("engine/flows", "next_dependency"), range),
        (sql!("engine/flows", "failed_dependency"), range),
        (sql!("engine/flows", "last_dependency"), "PRIMARY KEY (task_id=?)"),
        (sql!("engine/flows", "dependency_states"), "PRIMARY KEY (task_id=?)"),
        (sql!("engine/flows", "has_dependencies"), "PRIMARY KEY (task_id=?)"),
        (
            sql!("engine/flows", "blocked_on"),
            "task_engine_suspended_tasks_by_blocked (blocked_on=?)",
        ),
        (sql!("engine/flows", "blocked_late"), "USING INDEX task_engine_suspended_tasks_late"),
        (sql!("engine/flows", "blocked_needing"), child),
        (sql!("engine/flows", "block_on_reopened"), child),
        (sql!("engine/flows", "needing"), child),
        (sql!("engine/flows", "has_dependents"), child),
        (sql!("engine/flows", "dependents_to_extend"), child),
        (sql!("engine/flows", "needed_by"), child),
        (sql!("readers/dependencies", "dependents"), child),
        (sql!("readers/dependencies", "dependencies"), "PRIMARY KEY (task_id=?)"),
        (
            sql!("readers/dependencies", "flow_states"),
            "task_engine_created_by_correlation (<expr>=? AND rowid>?)",
        ),
        (sql!("engine/flows", "removable_flows"), "task_engine_created_by_correlation (<expr>=?)"),
    ] {
        let plan = plan(&connection, statement).join("\n");
        assert!(plan.contains(index), "{name}: {plan}");
        assert!(!plan.contains("FOR ORDER BY"), "{name}: {plan}");
        assert!(!plan.contains("SCAN created"), "{name}: {plan}");
    }
}
