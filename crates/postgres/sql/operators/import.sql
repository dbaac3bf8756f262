-- name: cancel_requests
INSERT INTO task_engine.cancel_requests (task_id, attempt, instance_id, requested_at)
SELECT task_id, attempt, instance_id, cancel_requested_at
FROM json_to_recordset($1::text::json)
  AS r(task_id bigint, attempt integer, instance_id bigint, cancel_requested_at timestamptz)
WHERE cancel_requested_at IS NOT NULL;

-- name: cancellations
INSERT INTO task_engine.cancellations (task_id, attempt, requested_at, delivered_at, answer)
SELECT task_id, attempt, requested_at, delivered_at, answer
FROM json_populate_recordset(NULL::task_engine.cancellations, $1::text::json);

-- name: claims
-- Imported claims: their holders have ended, so recovery reclaims them.
INSERT INTO task_engine.claims (id, instance_id, claimed_at, task_ids, attempts, retry_numbers)
SELECT (r.instance_id << 40) + r.task_id % (1::bigint << 40), r.instance_id, r.claimed_at,
  ARRAY[r.task_id], ARRAY[r.attempt], ARRAY[r.retry_number]
FROM json_to_recordset($1::text::json) AS r(task_id bigint, instance_id bigint,
  claimed_at timestamptz, attempt integer, retry_number integer);

-- name: dependencies
INSERT INTO task_engine.task_dependencies (task_id, depends_on)
SELECT id, child.value::bigint
FROM json_to_recordset($1::text::json) AS t(id bigint, depends_on json)
CROSS JOIN LATERAL json_array_elements_text(depends_on) AS child
WHERE depends_on IS NOT NULL;

-- name: conditional_dependencies
INSERT INTO task_engine.task_dependencies (task_id, depends_on, condition)
SELECT t.id, d."on", d.condition
FROM json_to_recordset($1::text::json) AS t(id bigint, dependencies json)
CROSS JOIN LATERAL json_to_recordset(t.dependencies) AS d("on" bigint, condition text)
WHERE t.dependencies IS NOT NULL;

-- name: flows
-- A flow that is here already stays as it is.
INSERT INTO task_engine.flows (correlation_id, name, created_at)
SELECT f.correlation_id, f.name, f.created_at
FROM json_array_elements($1::text::json) WITH ORDINALITY AS r(line, place)
CROSS JOIN LATERAL json_populate_record(NULL::task_engine.flows, r.line) AS f
ORDER BY r.place
ON CONFLICT DO NOTHING;

-- name: reopened
INSERT INTO task_engine.reopened_tasks (task_id, attempt)
SELECT t.id, a.value::integer
FROM json_to_recordset($1::text::json) AS t(id bigint, reopened json)
CROSS JOIN LATERAL json_array_elements_text(t.reopened) AS a
WHERE t.reopened IS NOT NULL;

-- name: execution_logs
INSERT INTO task_engine.execution_logs (task_id, attempt, line, logged_at, level, message)
SELECT task_id, attempt, line, logged_at, level, message
FROM json_populate_recordset(NULL::task_engine.execution_logs, $1::text::json);

-- name: execution_progress
INSERT INTO task_engine.execution_progress (task_id, attempt, version, lines, percent, message, reported_at)
SELECT task_id, attempt, version, lines, percent, message, reported_at
FROM json_populate_recordset(NULL::task_engine.execution_progress, $1::text::json);

-- name: executions
-- Claim 0 belongs to no engine, so a result that still arrives is late. An attempt that
-- no engine held was cancelled while it waited, and has no claim. Results are
-- taken from the row itself: a record would make SQL's null of JSON's.
INSERT INTO task_engine.ended_executions (task_id, attempt, retry_number, claim_id, instance_id,
  started_at, stopped_at, retry_at, worker, ends_task, result, error)
SELECT e.task_id, e.attempt, e.retry_number, CASE WHEN e.instance_id IS NOT NULL THEN 0 END,
  e.instance_id, e.started_at, e.stopped_at, e.retry_at, e.worker, e.ends_task,
  (r.line->'result')::jsonb, (r.line->'error')::jsonb
FROM json_array_elements($1::text::json) AS r(line)
CROSS JOIN LATERAL json_populate_record(NULL::task_engine.ended_executions, r.line) AS e;

-- name: fired_slots
INSERT INTO task_engine.fired_slots (schedule_id, slot, task_id, fired_at)
SELECT schedule_id, slot, task_id, fired_at
FROM json_populate_recordset(NULL::task_engine.fired_slots, $1::text::json);

-- name: instances
-- Ended sessions: one that is alive is so in another database.
INSERT INTO task_engine.instances (id, name, host, pid, version, workers, queues, pools, classes,
  lease, started_at, heartbeat_at, stopped_at, lost_at)
OVERRIDING SYSTEM VALUE
SELECT i.id, i.name, i.host, i.pid, i.version, i.workers, i.queues, i.pools, i.classes,
  i.lease_ms * interval '1 millisecond', i.started_at, i.heartbeat_at, i.stopped_at,
  CASE WHEN i.stopped_at IS NULL AND i.lost_at IS NULL THEN clock_timestamp() ELSE i.lost_at END
FROM json_to_recordset($1::text::json) AS i(id bigint, name text, host text, pid integer, version text,
  workers integer, queues text[], pools jsonb, classes jsonb, lease_ms bigint,
  started_at timestamptz, heartbeat_at timestamptz, stopped_at timestamptz, lost_at timestamptz);

-- name: is_empty
-- Whether ids can be kept.
SELECT NOT EXISTS (SELECT FROM task_engine.created_tasks)
  AND NOT EXISTS (SELECT FROM task_engine.schedules) AS is_empty;

-- name: late_results
-- As with executions.sql.
INSERT INTO task_engine.late_results (task_id, attempt, arrived_at, result, error)
SELECT l.task_id, l.attempt, l.arrived_at, (r.line->'result')::jsonb, (r.line->'error')::jsonb
FROM json_array_elements($1::text::json) AS r(line)
CROSS JOIN LATERAL json_populate_record(NULL::task_engine.late_results, r.line) AS l;

-- name: lock
-- Creation takes an id while it holds a weaker lock. From here on, no creation is open.
LOCK TABLE task_engine.created_tasks, task_engine.instances, task_engine.schedules
  IN SHARE ROW EXCLUSIVE MODE;

-- name: paused_queues
-- A queue that is paused here already stays so, for its own reason.
INSERT INTO task_engine.paused_queues (queue, reason, paused_at)
SELECT queue, reason, paused_at
FROM json_populate_recordset(NULL::task_engine.paused_queues, $1::text::json)
ON CONFLICT DO NOTHING;

-- name: reserve
-- Ids from here on are higher; setval is not undone by a rollback, and need not be.
SELECT setval(pg_get_serial_sequence('task_engine.' || s.relation, 'id')::regclass, s.last)
FROM (VALUES ('created_tasks', $1::bigint), ('instances', $2::bigint), ('schedules', $3::bigint))
  AS s(relation, last)
WHERE s.last > 0;

-- name: same_schedule
SELECT name FROM task_engine.schedules WHERE name = ANY ($1) LIMIT 1;

-- name: schedule_events
INSERT INTO task_engine.schedule_events
  (schedule_id, kind, first_slot, last_slot, slots, task_id, requested_by, recorded_at)
SELECT schedule_id, kind, first_slot, last_slot, slots, task_id, requested_by, recorded_at
FROM json_populate_recordset(NULL::task_engine.schedule_events, $1::text::json);

-- name: schedules
INSERT INTO task_engine.schedules (id, version, name, definition, declared, overlap, anchor, paused_at,
  pause_reason, error, next_at, last_slot, last_task_id, created_at, updated_at)
OVERRIDING SYSTEM VALUE
SELECT id, version, name, definition, declared, overlap, anchor, paused_at, pause_reason, error,
  next_at, last_slot, last_task_id, created_at, updated_at
FROM json_populate_recordset(NULL::task_engine.schedules, $1::text::json);

-- name: signals
INSERT INTO task_engine.signals (task_id, name, payload, sent_at, timed_out)
SELECT s.task_id, s.name, (r.line->'payload')::jsonb, s.sent_at, coalesce(s.timed_out, false)
FROM json_array_elements($1::text::json) AS r(line)
CROSS JOIN LATERAL json_populate_record(NULL::task_engine.signals, r.line) AS s;

-- name: steps
-- As with executions.
INSERT INTO task_engine.steps
  (task_id, name, number, attempt, kind, result, until, started_at, recorded_at)
SELECT s.task_id, s.name, s.number, s.attempt, s.kind, (r.line->'result')::jsonb, s.until,
  s.started_at, s.recorded_at
FROM json_array_elements($1::text::json) AS r(line)
CROSS JOIN LATERAL json_populate_record(NULL::task_engine.steps, r.line) AS s;

-- name: suspended
-- The attempt before the one that the task waits for has suspended it.
INSERT INTO task_engine.suspended_tasks (task_id, attempt, signals, watching, blocked_on)
SELECT id, (waiting->>'attempt')::integer - 1,
  ARRAY(SELECT json_array_elements_text(coalesce(suspended->'signals', '[]'))),
  CASE WHEN NOT coalesce((suspended->>'blocked')::boolean, false)
    THEN (suspended->>'watching')::bigint END,
  CASE WHEN (suspended->>'blocked')::boolean THEN (suspended->>'watching')::bigint END
FROM json_to_recordset($1::text::json) AS t(id bigint, waiting json, suspended json)
WHERE suspended IS NOT NULL;

-- name: tasks
INSERT INTO task_engine.created_tasks (id, task_class, queue, priority, created_at, scheduled_at,
  task_parameters, context)
OVERRIDING SYSTEM VALUE
SELECT id, class, queue, priority, created_at, scheduled_at, parameters, context
FROM json_to_recordset($1::text::json) AS t(id bigint, class text, queue text, priority integer,
  created_at timestamptz, scheduled_at timestamptz, parameters jsonb, context jsonb);

-- name: unique_tasks
-- A key that a task here has stays with it.
INSERT INTO task_engine.unique_tasks (task_class, unique_key, task_id)
SELECT class, context->>'unique_key', id
FROM json_to_recordset($1::text::json)
  AS t(id bigint, class text, context json, has_unique_key boolean)
WHERE has_unique_key
ON CONFLICT DO NOTHING;

-- name: waiting
INSERT INTO task_engine.waiting_tasks
  (task_id, due_at, priority, attempt, retry_number, queue, task_class)
SELECT id, (waiting->>'due_at')::timestamptz, priority, (waiting->>'attempt')::integer,
  (waiting->>'retry_number')::integer,
  CASE WHEN (suspended->>'blocked')::boolean THEN chr(30) || queue ELSE queue END, class
FROM json_to_recordset($1::text::json)
  AS t(id bigint, priority integer, queue text, class text, waiting json, suspended json)
WHERE waiting IS NOT NULL;

-- name: wake
-- Wakes all engines after an import.
SELECT task_engine.wake(''), pg_notify('task-engine-schedule', '');

-- name: limit
-- A limit: $1 name, $2 class, $3 queue, $4 declared, $5 set by an operator. One that is there
-- already stays as it is.
INSERT INTO task_engine.limits
  (name, task_class, queue, options, declared, set_by_operator, changed_at)
VALUES ($1, $2, $3, coalesce($5::jsonb, $4::jsonb), $4::jsonb, $5::jsonb IS NOT NULL, now())
ON CONFLICT (name) DO NOTHING;

-- name: limited_target
INSERT INTO task_engine.limited_targets VALUES (coalesce($1, ''), coalesce($2, ''))
ON CONFLICT (task_class, queue) DO UPDATE SET in_use = true;

-- name: closed_key
INSERT INTO task_engine.closed_keys (limit_id, key, closed_until, reason)
SELECT l.id, $4, $5, $6 FROM task_engine.limits l
WHERE l.name = $1 AND l.task_class IS NOT DISTINCT FROM $2 AND l.queue IS NOT DISTINCT FROM $3
ON CONFLICT DO NOTHING;

-- name: any_limit
SELECT id FROM task_engine.limits LIMIT 1;

-- name: lock_claims
-- Until the end of the transaction, so that the imported attempts are counted.
LOCK TABLE task_engine.claims IN SHARE ROW EXCLUSIVE MODE;

-- name: count_limits
-- Imported attempts that run count for limits.
SELECT task_engine.count_running(l.id) FROM task_engine.limits l
WHERE l.options ? 'max' OR l.options -> 'in_order' = 'true';

-- name: change_limits
UPDATE task_engine.limits_version SET version = version + 1;
