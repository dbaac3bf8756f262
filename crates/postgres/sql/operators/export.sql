-- name: cancellations
-- Finished cancel requests, also those that no heartbeat has moved yet.
SELECT task_id, attempt, requested_at, delivered_at, answer
FROM task_engine.cancellations WHERE task_id BETWEEN $1 AND $2
UNION ALL
SELECT r.task_id, r.attempt, r.requested_at, NULL, NULL
FROM task_engine.cancel_requests r
JOIN task_engine.ended_executions e ON e.task_id = r.task_id AND e.attempt = r.attempt
WHERE r.task_id BETWEEN $1 AND $2 AND NOT EXISTS (
  SELECT FROM task_engine.cancellations c WHERE c.task_id = r.task_id AND c.attempt = r.attempt)
ORDER BY task_id, attempt;

-- name: dependencies
SELECT task_id, depends_on, condition
FROM task_engine.task_dependencies WHERE task_id BETWEEN $1 AND $2 ORDER BY task_id, depends_on;

-- name: executions
-- The ended attempts of a page of tasks. A range of the primary key, as all of these.
SELECT task_id, attempt, retry_number, instance_id, worker, started_at, stopped_at, retry_at,
  ends_task::text, task_engine.readable(result) AS result, task_engine.readable(error) AS error
FROM task_engine.ended_executions WHERE task_id BETWEEN $1 AND $2 ORDER BY task_id, attempt;

-- name: fired_slots
SELECT slot, task_id, fired_at
FROM task_engine.fired_slots WHERE schedule_id = $1 ORDER BY slot;

-- name: flows
-- A page of flows after $1.
SELECT id, correlation_id, name, created_at FROM task_engine.flows
WHERE id > $1 ORDER BY id LIMIT $2;

-- name: held
-- All held attempts: as many rows as busy workers.
SELECT h.task_id, h.attempt, h.retry_number, h.instance_id, h.claimed_at,
  r.requested_at AS cancel_requested_at
FROM task_engine.held_attempts h
LEFT JOIN task_engine.cancel_requests r ON r.task_id = h.task_id AND r.attempt = h.attempt;

-- name: instances
-- Every engine session.
SELECT id, name, host, pid, version, workers, (extract(epoch FROM lease) * 1000)::bigint AS lease_ms,
  queues, task_engine.readable(pools) AS pools, task_engine.readable(classes) AS classes, started_at, heartbeat_at, stopped_at, lost_at
FROM task_engine.instances ORDER BY id;

-- name: last_ids
-- The highest ids that were ever given.
SELECT clock_timestamp() AS now,
  coalesce(pg_sequence_last_value(pg_get_serial_sequence('task_engine.created_tasks', 'id')::regclass), 0) AS tasks,
  coalesce(pg_sequence_last_value(pg_get_serial_sequence('task_engine.instances', 'id')::regclass), 0) AS instances,
  coalesce(pg_sequence_last_value(pg_get_serial_sequence('task_engine.schedules', 'id')::regclass), 0) AS schedules;

-- name: late_results
SELECT task_id, attempt, arrived_at, task_engine.readable(result) AS result, task_engine.readable(error) AS error
FROM task_engine.late_results WHERE task_id BETWEEN $1 AND $2 ORDER BY task_id, attempt;

-- name: logs
SELECT task_id, attempt, line, logged_at, level, message
FROM task_engine.execution_logs WHERE task_id BETWEEN $1 AND $2 ORDER BY task_id, attempt, line;

-- name: progress
SELECT task_id, attempt, version, lines, percent, message, reported_at
FROM task_engine.execution_progress WHERE task_id BETWEEN $1 AND $2 ORDER BY task_id, attempt;

-- name: schedule_events
SELECT kind, first_slot, last_slot, slots, task_id, requested_by, recorded_at
FROM task_engine.schedule_events WHERE schedule_id = $1 ORDER BY id;

-- name: schedules
-- Every schedule.
SELECT id, version, name, task_engine.readable(definition) AS definition, declared, overlap, anchor, paused_at, pause_reason, error,
  next_at, last_slot, last_task_id, created_at, updated_at
FROM task_engine.schedules ORDER BY id;

-- name: signals
SELECT task_id, name, task_engine.readable(payload) AS payload, sent_at, timed_out
FROM task_engine.signals WHERE task_id BETWEEN $1 AND $2 ORDER BY task_id, sent_at, name;

-- name: steps
SELECT task_id, name, number, attempt, kind, task_engine.readable(result) AS result, until,
  started_at, recorded_at
FROM task_engine.steps WHERE task_id BETWEEN $1 AND $2
ORDER BY task_id, number, recorded_at, name;

-- name: reopened
SELECT task_id, attempt
FROM task_engine.reopened_tasks WHERE task_id BETWEEN $1 AND $2 ORDER BY task_id, attempt;

-- name: suspended
SELECT task_id, attempt, signals, coalesce(blocked_on, watching) AS watching,
  blocked_on IS NOT NULL AS blocked
FROM task_engine.suspended_tasks WHERE task_id BETWEEN $1 AND $2;

-- name: tasks
-- A page of tasks after $1, with where they wait: a walk along the keys.
SELECT c.id, c.task_class, c.queue, c.priority, c.created_at, c.scheduled_at,
  task_engine.readable(c.task_parameters) AS task_parameters,
  task_engine.readable(c.context) AS context,
  coalesce(
    'its parameters cannot be read: ' || task_engine.unreadable(c.task_parameters),
    'its context cannot be read: ' || task_engine.unreadable(c.context)) AS unreadable,
  w.attempt, w.retry_number, w.due_at,
  -- Not EXISTS: some versions of PostgreSQL read all of unique_tasks for that.
  coalesce((SELECT u.task_id FROM task_engine.unique_tasks u
    WHERE u.task_class = c.task_class
      AND u.unique_key = task_engine.readable(c.context)->>'unique_key') = c.id,
    false) AS has_unique_key
FROM task_engine.created_tasks c
LEFT JOIN task_engine.waiting_tasks w ON w.task_id = c.id
WHERE c.id > $1 ORDER BY c.id LIMIT $2;

-- name: limits
-- Limits that operators have set, or that have closed keys.
SELECT l.name, l.task_class, l.queue, l.declared,
  CASE WHEN l.set_by_operator THEN l.options END AS operator,
  ARRAY(SELECT c.key FROM task_engine.closed_keys c
        WHERE c.limit_id = l.id AND c.closed_until > now() ORDER BY c.key) AS closed_keys,
  ARRAY(SELECT c.closed_until FROM task_engine.closed_keys c
        WHERE c.limit_id = l.id AND c.closed_until > now() ORDER BY c.key) AS closed_until,
  ARRAY(SELECT c.reason FROM task_engine.closed_keys c
        WHERE c.limit_id = l.id AND c.closed_until > now() ORDER BY c.key) AS reasons
FROM task_engine.limits l
WHERE l.set_by_operator OR (SELECT c.limit_id FROM task_engine.closed_keys c
  WHERE c.limit_id = l.id AND c.closed_until > now() LIMIT 1) IS NOT NULL
ORDER BY l.name;
