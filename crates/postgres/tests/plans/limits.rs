//! Statements of limits.

use task_engine_store::sql::statement;

use crate::{assert_by_keys, plan, tables};

const ENGINE: &str = include_str!("../../sql/engine/limits.sql");
const READERS: &str = include_str!("../../sql/readers/limits.sql");

const LARGE: [&str; 6] =
    ["waiting_tasks", "created_tasks", "claims", "ended_executions", "limit_keys", "limit_starts"];

/// Limits and their versions are few, and are read as a whole.
#[tokio::test]
async fn limited_claims_read_by_keys() {
    let client = tables().await;
    let claim = "1, 1, 1, '{a}', '{b}', '{0}', '{[]}', '{1}', '{0}', '{1}', '{1}', '{k}', '{0}', \
        '{now}', '{0}', '{NULL}', '{true}', '{}', '{}', '{-infinity}', '{0}'";
    for (name, arguments) in [
        ("move_to_lanes", "'a', 'b', 0, '-infinity', 0, 100, 25"),
        ("move_in_order", "'a', 'b', 0, '-infinity', 0, 100, 25"),
        ("renew_lane", "'a', 'b', 0, '[]', 100, true, 1"),
        ("limited_lanes", "'a', 'b', 0, '', 100"),
        ("named_lanes", "'a', 'b', 0, '{[]}', '{-infinity}', '{0}'"),
        ("new_lanes", "'a', 'b', 0, '{\"\"}', '{~}', 100"),
        ("holder_lanes", "'{1}', 'a', 'b', 0"),
        ("add_limit_keys", "'{1}', '{k}'"),
        ("limit_key_states", "'{1}', '{k}', '{5}', '{true}', 100"),
        ("correct_starts", "'{1}', '{k}', 1000000"),
        ("claim_limited", claim),
    ] {
        let sql = ENGINE.contains(&format!("name: {name}\n")).then(|| statement(ENGINE, name));
        let plan = plan(&client, name, sql.expect(name), arguments).await;
        assert_by_keys(&plan, &LARGE);
    }
}

/// One probe finds the next lane.
#[tokio::test]
async fn lanes_of_keys_are_in_index() {
    let client = tables().await;
    for (sql, arguments) in [
        (statement(ENGINE, "limited_lanes"), "'a', 'b', 0, '', 100"),
        (statement(READERS, "limited_lanes_in_use"), "100, 100"),
    ] {
        let plan = plan(&client, "lanes", sql, arguments).await;
        assert!(plan.contains("waiting_tasks_by_limited_lane"), "{plan}");
        assert!(!plan.contains("Seq Scan on waiting_tasks"), "{plan}");
        client.batch_execute("DEALLOCATE lanes").await.unwrap();
    }
}

/// Many tasks of one key: statistics say that all tasks have the same lane key.
#[tokio::test]
async fn large_lane_hides_no_other() {
    let client = tables().await;
    let fill = "DELETE FROM task_engine.waiting_tasks;
        INSERT INTO task_engine.waiting_tasks
          (task_id, due_at, priority, attempt, retry_number, queue, task_class, lane_key)
        SELECT n, now(), 0, 1, 0, chr(31) || 'a', 'b', '[[1, \"acme\"]]'
        FROM generate_series(1, 50000) AS n;
        ANALYZE task_engine.waiting_tasks";
    client.batch_execute(fill).await.unwrap();
    let claim = "1, 1, 1, '{a}', '{b}', '{0}', '{[]}', '{1}', '{0}', '{1}', '{1}', '{k}', '{0}', \
        '{now}', '{0}', '{NULL}', '{true}', '{}', '{}', '{-infinity}', '{0}'";
    for (name, arguments) in [
        ("renew_lane", "'a', 'b', 0, '[]', 100, true, 1"),
        ("named_lanes", "'a', 'b', 0, '{[]}', '{-infinity}', '{0}'"),
        ("new_lanes", "'a', 'b', 0, '{\"\"}', '{~}', 100"),
        ("claim_limited", claim),
    ] {
        let plan = plan(&client, name, statement(ENGINE, name), arguments).await;
        assert!(plan.contains("waiting_tasks_by_limited_lane"), "{plan}");
        assert!(!plan.contains("waiting_tasks_by_lane "), "{plan}");
    }
}

#[tokio::test]
async fn keys_in_use_are_read_by_keys() {
    let client = tables().await;
    let sql = statement(READERS, "limit_keys_in_use");
    let plan = plan(&client, "keys", sql, "NULL, 100").await;
    assert_by_keys(&plan, &LARGE);
}
