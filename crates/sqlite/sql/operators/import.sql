-- name: cancel_request
INSERT INTO task_engine_cancel_requests (task_id, attempt, requested_at) VALUES (?1, ?2, ?3);

-- name: cancellation
INSERT INTO task_engine_cancellations (task_id, attempt, requested_at, delivered_at, answer)
VALUES (?1, ?2, ?3, ?4, ?5);

-- name: claim
-- An imported claim: its holder has ended, so recovery reclaims it.
INSERT INTO task_engine_claims (id, instance_id, claimed_at, attempts)
VALUES (?1, ?2, ?3, json_array(json_array(?4, ?5, ?6)));

-- name: dependency
INSERT INTO task_engine_task_dependencies (task_id, depends_on, condition) VALUES (?1, ?2, ?3);

-- name: flow
-- A flow that is here already stays as it is.
INSERT INTO task_engine_flows (correlation_id, name, created_at) VALUES (?1, ?2, ?3)
ON CONFLICT DO NOTHING;

-- name: reopened
INSERT INTO task_engine_reopened_tasks (task_id, attempt) VALUES (?1, ?2);

-- name: execution
-- No claim is known here, so a result that still arrives is late.
INSERT INTO task_engine_ended_executions (
    task_id, attempt, retry_number, instance_id, worker, started_at, stopped_at, retry_at, ends_task,
    result, error
) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11);

-- name: fired_slot
INSERT INTO task_engine_fired_slots (schedule_id, slot, task_id, fired_at) VALUES (?1, ?2, ?3, ?4);

-- name: delete_sequence
-- Before a new value: sqlite_sequence has no key.
DELETE FROM sqlite_sequence WHERE name = ?1;

-- name: instance
-- An ended session.
INSERT INTO task_engine_instances (
    id, name, host, pid, version, workers, lease_ms, queues, pools, classes,
    started_at, heartbeat_at, stopped_at, lost_at
) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14);

-- name: is_empty
-- Whether ids can be kept.
SELECT NOT EXISTS (SELECT 1 FROM task_engine_created_tasks)
    AND NOT EXISTS (SELECT 1 FROM task_engine_schedules);

-- name: late_result
-- The file does not name the sender; it was the engine of the attempt.
INSERT INTO task_engine_late_results
    (task_id, attempt, arrived_at, claim_id, instance_id, stopped_at, result, error)
VALUES (?1, ?2, ?3, 0, coalesce(?4, 0), ?3, ?5, ?6);

-- name: log
INSERT INTO task_engine_execution_logs (task_id, attempt, line, logged_at, level, message)
VALUES (?1, ?2, ?3, ?4, ?5, ?6);

-- name: paused_queue
-- A queue that is paused here already stays so, for its own reason.
INSERT INTO task_engine_paused_queues (queue, reason, paused_at) VALUES (?1, ?2, ?3)
ON CONFLICT DO NOTHING;

-- name: progress
INSERT INTO task_engine_execution_progress
    (task_id, attempt, version, lines, percent, message, reported_at)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7);

-- name: schedule
INSERT INTO task_engine_schedules (
    id, version, name, definition, declared, overlap, anchor, paused_at, pause_reason, error, next_at,
    last_slot, last_task_id, created_at, updated_at
) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15);

-- name: schedule_event
INSERT INTO task_engine_schedule_events
    (schedule_id, kind, first_slot, last_slot, slots, task_id, requested_by, recorded_at)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8);

-- name: set_sequence
-- The next id is higher than this.
INSERT INTO sqlite_sequence (name, seq) VALUES (?1, ?2);

-- name: signal
INSERT INTO task_engine_signals (task_id, name, payload, sent_at, timed_out)
VALUES (?1, ?2, ?3, ?4, ?5);

-- name: step
INSERT INTO task_engine_steps
    (task_id, name, number, attempt, kind, result, until, started_at, recorded_at)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9);

-- name: suspended
-- The attempt before the one that the task waits for has suspended it.
INSERT INTO task_engine_suspended_tasks (task_id, attempt, signals, watching, blocked_on)
VALUES (?1, ?2 - 1, ?3, iif(?5, NULL, ?4), iif(?5, ?4, NULL));

-- name: task
INSERT INTO task_engine_created_tasks
    (id, task_class, queue, priority, created_at, scheduled_at, task_parameters, context)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8);

-- name: unique_key
-- A key that a task here has stays with it.
INSERT INTO task_engine_unique_tasks (task_class, unique_key, task_id) VALUES (?1, ?2, ?3)
ON CONFLICT DO NOTHING;

-- name: waiting
INSERT INTO task_engine_waiting_tasks
    (task_id, queue, task_class, priority, due_at, attempt, retry_number)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7);
