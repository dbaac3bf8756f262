-- Back to empty tables, and to an empty log.
BEGIN IMMEDIATE;
DELETE FROM task_engine_waiting_tasks;
DELETE FROM task_engine_claims;
DELETE FROM task_engine_limits;
DELETE FROM task_engine_limit_keys;
DELETE FROM task_engine_limit_starts;
DELETE FROM task_engine_ended_executions;
DELETE FROM task_engine_steps;
DELETE FROM task_engine_signals;
DELETE FROM task_engine_task_dependencies;
DELETE FROM task_engine_suspended_tasks;
DELETE FROM task_engine_flows;
DELETE FROM task_engine_reopened_tasks;
DELETE FROM task_engine_created_tasks;
DELETE FROM task_engine_instances;
COMMIT;
PRAGMA wal_checkpoint(TRUNCATE);
