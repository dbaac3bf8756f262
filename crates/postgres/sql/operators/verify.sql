-- name: verify
-- Every violation of an invariant: its kind and a message. Reads everything, in one snapshot.
WITH last AS MATERIALIZED (
  SELECT DISTINCT ON (task_id) task_id, attempt, ends_task, stopped_at
  FROM task_engine.ended_executions ORDER BY task_id, attempt DESC
), held AS MATERIALIZED (
  SELECT task_id, attempt FROM task_engine.held_attempts
), place AS (
  SELECT c.id,
    (w.task_id IS NOT NULL)::integer AS waits, coalesce(h.times, 0) AS held,
    last.attempt, last.ends_task
  FROM task_engine.created_tasks c
  LEFT JOIN task_engine.waiting_tasks w ON w.task_id = c.id
  LEFT JOIN (SELECT task_id, count(*) AS times FROM held GROUP BY task_id) h ON h.task_id = c.id
  LEFT JOIN last ON last.task_id = c.id
)
SELECT 'task_lost' AS kind,
  format('task %s is lost: it does not wait, no engine holds it, and it has not ended', id) AS message
FROM place WHERE waits = 0 AND held = 0 AND ends_task IS NULL
UNION ALL
SELECT 'task_in_two_states', format('task %s is in %s places: it waits %s times and is held %s times', id, waits + held, waits, held)
FROM place WHERE waits + held > 1
UNION ALL
SELECT 'continued_after_success', format('task %s was done and goes on all the same', id)
FROM place WHERE waits + held > 0 AND ends_task = 'stopped'
UNION ALL
SELECT 'attempt_reused', format('task %s waits for attempt %s, but attempt %s has ended', w.task_id, w.attempt, l.attempt)
FROM task_engine.waiting_tasks w JOIN last l ON l.task_id = w.task_id WHERE l.attempt >= w.attempt
UNION ALL
SELECT 'attempt_reused', format('task %s is held as attempt %s, but attempt %s has ended', h.task_id, h.attempt, l.attempt)
FROM held h JOIN last l ON l.task_id = h.task_id WHERE l.attempt >= h.attempt
UNION ALL
SELECT 'task_not_created', format('task %s waits, but was never created', w.task_id)
FROM task_engine.waiting_tasks w LEFT JOIN task_engine.created_tasks c ON c.id = w.task_id WHERE c.id IS NULL
UNION ALL
SELECT 'task_not_created', format('task %s is held, but was never created', h.task_id)
FROM held h LEFT JOIN task_engine.created_tasks c ON c.id = h.task_id WHERE c.id IS NULL
UNION ALL
SELECT 'task_not_created', format('attempt %s of task %s is recorded, but the task was never created', e.attempt, e.task_id)
FROM task_engine.ended_executions e LEFT JOIN task_engine.created_tasks c ON c.id = e.task_id WHERE c.id IS NULL
UNION ALL
-- A child that a task depends on may be removed before it.
SELECT 'task_not_created', format('task %s has %s, but was never created', d.task_id, d.what)
FROM (
  SELECT task_id, 'steps' AS what FROM task_engine.steps
  UNION
  SELECT task_id, 'signals' FROM task_engine.signals
  UNION
  SELECT task_id, CASE WHEN condition IS NULL THEN 'children' ELSE 'dependencies' END
  FROM task_engine.task_dependencies
  UNION
  SELECT task_id, 'a suspension' FROM task_engine.suspended_tasks
) AS d LEFT JOIN task_engine.created_tasks c ON c.id = d.task_id WHERE c.id IS NULL
UNION ALL
-- After an end and before its look at the parents, this is as it should be. A look that a
-- crash prevented is made up for by the heartbeats of an engine.
SELECT 'task_not_resumed', format('task %s still waits, although %s more than a minute ago', s.task_id, event.what)
FROM task_engine.suspended_tasks s
JOIN task_engine.waiting_tasks w ON w.task_id = s.task_id AND w.attempt = s.attempt + 1
CROSS JOIN LATERAL (
  SELECT format('its signal %s was sent', g.name) AS what, g.sent_at AS happened_at
  FROM task_engine.signals g WHERE g.task_id = s.task_id AND g.name = ANY (s.signals)
  UNION ALL
  SELECT format('its child %s ended', l.task_id), l.stopped_at
  FROM last l WHERE l.task_id = s.watching AND l.ends_task IS NOT NULL
) AS event
WHERE w.due_at > clock_timestamp() AND event.happened_at < clock_timestamp() - interval '1 minute'
  AND EXISTS (
    SELECT FROM task_engine.instances i
    WHERE i.stopped_at IS NULL AND i.lost_at IS NULL AND i.heartbeat_at + i.lease > clock_timestamp()
      AND i.started_at < clock_timestamp() - interval '1 minute')
UNION ALL
SELECT 'slot_mismatch', format('slot %s of schedule %s has fired and is awaited again', f.slot, s.name)
FROM task_engine.schedules s JOIN task_engine.fired_slots f ON f.schedule_id = s.id WHERE f.slot >= s.next_at
UNION ALL
SELECT 'unknown_instance', format('claim %s belongs to an instance that was never registered', k.id)
FROM task_engine.claims k LEFT JOIN task_engine.instances i ON i.id = k.instance_id WHERE i.id IS NULL
UNION ALL
SELECT 'report_without_attempt', format('attempt %s of task %s has said something, but is neither held nor ended', p.attempt, p.task_id)
FROM task_engine.execution_progress p
LEFT JOIN task_engine.ended_executions e ON e.task_id = p.task_id AND e.attempt = p.attempt
LEFT JOIN held h ON h.task_id = p.task_id AND h.attempt = p.attempt
WHERE e.task_id IS NULL AND h.task_id IS NULL
UNION ALL
SELECT 'log_line_out_of_range', format('attempt %s of task %s has line %s, but has said %s lines', l.attempt, l.task_id, l.line, coalesce(p.lines, 0))
FROM (SELECT task_id, attempt, max(line) AS line FROM task_engine.execution_logs GROUP BY task_id, attempt) l
LEFT JOIN task_engine.execution_progress p ON p.task_id = l.task_id AND p.attempt = l.attempt
WHERE l.line > coalesce(p.lines, 0)
UNION ALL
SELECT 'cancellation_without_end', format('attempt %s of task %s was to be cancelled, but has not ended', c.attempt, c.task_id)
FROM task_engine.cancellations c
LEFT JOIN task_engine.ended_executions e ON e.task_id = c.task_id AND e.attempt = c.attempt
WHERE e.task_id IS NULL
UNION ALL
SELECT 'unique_key_mismatch', format('the unique key %L of class %s belongs to task %s, which is not there', u.unique_key, u.task_class, u.task_id)
FROM task_engine.unique_tasks u LEFT JOIN task_engine.created_tasks c ON c.id = u.task_id WHERE c.id IS NULL
UNION ALL
SELECT 'unique_key_mismatch', format('the unique key %L of class %s belongs to task %s, which has another class or key', u.unique_key, u.task_class, u.task_id)
FROM task_engine.unique_tasks u JOIN task_engine.created_tasks c ON c.id = u.task_id
WHERE (c.task_class, task_engine.readable(c.context) ->> 'unique_key') IS DISTINCT FROM (u.task_class, u.unique_key)
UNION ALL
SELECT 'unreadable_value', format('%s of task %s cannot be read: %s', bad.what, bad.id, bad.why)
FROM (
  SELECT c.id, 'the parameters' AS what, task_engine.unreadable(c.task_parameters) AS why
  FROM task_engine.created_tasks c
  UNION ALL
  SELECT c.id, 'the context', task_engine.unreadable(c.context) FROM task_engine.created_tasks c
  UNION ALL
  SELECT e.task_id, format('the result of attempt %s', e.attempt), task_engine.unreadable(e.result)
  FROM task_engine.ended_executions e
  UNION ALL
  SELECT e.task_id, format('the error of attempt %s', e.attempt), task_engine.unreadable(e.error)
  FROM task_engine.ended_executions e
  UNION ALL
  SELECT l.task_id, format('the late result of attempt %s', l.attempt),
    coalesce(task_engine.unreadable(l.result), task_engine.unreadable(l.error))
  FROM task_engine.late_results l
  UNION ALL
  SELECT s.task_id, format('the result of step %s', s.name), task_engine.unreadable(s.result)
  FROM task_engine.steps s
  UNION ALL
  SELECT g.task_id, format('the payload of signal %s', g.name), task_engine.unreadable(g.payload)
  FROM task_engine.signals g
) AS bad WHERE bad.why IS NOT NULL
UNION ALL
SELECT 'unreadable_value', format('schedule %s cannot be read: %s', s.name, task_engine.unreadable(s.definition))
FROM task_engine.schedules s WHERE task_engine.unreadable(s.definition) IS NOT NULL
UNION ALL
SELECT 'time_out_of_range', format('task %s has a time that no calendar can show', t.id)
FROM (
  SELECT c.id, c.created_at AS one, c.scheduled_at AS other FROM task_engine.created_tasks c
  UNION ALL
  SELECT w.task_id, w.due_at, w.due_at FROM task_engine.waiting_tasks w
  UNION ALL
  SELECT e.task_id, e.stopped_at, coalesce(e.started_at, e.stopped_at) FROM task_engine.ended_executions e
  UNION ALL
  SELECT s.task_id, s.started_at, s.recorded_at FROM task_engine.steps s
  UNION ALL
  SELECT g.task_id, g.sent_at, g.sent_at FROM task_engine.signals g
) AS t WHERE NOT (isfinite(t.one) AND isfinite(t.other) AND greatest(t.one, t.other) < '9999-01-01Z')
UNION ALL
-- Of a task that was cancelled or started otherwise, the suspended row is removed later.
SELECT 'blocked_row_invalid', format('task %s waits in queue %s, but for no task', w.task_id, to_json(w.queue))
FROM task_engine.waiting_tasks w
LEFT JOIN task_engine.suspended_tasks s ON s.task_id = w.task_id AND s.attempt + 1 = w.attempt AND s.blocked_on IS NOT NULL
WHERE starts_with(w.queue, chr(30)) AND s.task_id IS NULL
UNION ALL
SELECT 'blocked_row_invalid', format('task %s waits for task %s, on which it does not depend', s.task_id, s.blocked_on)
FROM task_engine.suspended_tasks s
JOIN task_engine.waiting_tasks w ON w.task_id = s.task_id AND s.attempt + 1 = w.attempt AND starts_with(w.queue, chr(30))
LEFT JOIN task_engine.task_dependencies d ON d.task_id = s.task_id AND d.depends_on = s.blocked_on AND d.condition IS NOT NULL
WHERE s.blocked_on IS NOT NULL AND d.task_id IS NULL
UNION ALL
-- As above: after an end and before its look at what depends on it, this is as it should be.
SELECT 'task_not_resumed', format('task %s still waits for others, although its dependencies decided more than a minute ago', s.task_id)
FROM task_engine.suspended_tasks s
JOIN task_engine.waiting_tasks w ON w.task_id = s.task_id AND w.attempt = s.attempt + 1 AND starts_with(w.queue, chr(30))
CROSS JOIN LATERAL (
  SELECT bool_or(l.ends_task IS NULL AND c.id IS NOT NULL OR r.task_id IS NOT NULL) AS is_open,
    bool_or(d.condition = 'success' AND l.ends_task IN ('failed', 'cancelled') AND r.task_id IS NULL
      AND l.stopped_at < clock_timestamp() - interval '1 minute') AS has_failed,
    max(l.stopped_at) AS stopped_at
  FROM task_engine.task_dependencies d
  LEFT JOIN task_engine.created_tasks c ON c.id = d.depends_on
  LEFT JOIN last l ON l.task_id = d.depends_on
  LEFT JOIN task_engine.reopened_tasks r ON r.task_id = l.task_id AND r.attempt = l.attempt
  WHERE d.task_id = s.task_id AND d.condition IS NOT NULL
) AS on_others
WHERE (on_others.has_failed OR NOT on_others.is_open
    AND coalesce(on_others.stopped_at, '-infinity') < clock_timestamp() - interval '1 minute')
  AND EXISTS (
    SELECT FROM task_engine.instances i
    WHERE i.stopped_at IS NULL AND i.lost_at IS NULL AND i.heartbeat_at + i.lease > clock_timestamp()
      AND i.started_at < clock_timestamp() - interval '1 minute')
UNION ALL
SELECT 'limited_row_invalid', format('task %s waits in queue %s with the lane key %s', w.task_id, to_json(w.queue), coalesce(w.lane_key, 'null'))
FROM task_engine.waiting_tasks w WHERE (w.lane_key IS NOT NULL) <> starts_with(w.queue, chr(31))
UNION ALL
SELECT 'limit_not_counted', format('attempt %s of task %s runs, but does not count for limit %s', h.attempt, h.task_id, to_json(l.name))
FROM held h
JOIN task_engine.created_tasks c ON c.id = h.task_id
JOIN task_engine.limits l ON (l.options ? 'max' OR l.options -> 'in_order' = 'true')
  AND (l.task_class = c.task_class OR l.queue = c.queue
    OR l.task_class IS NULL AND l.queue IS NULL AND c.context -> 'limits' ? l.name)
WHERE NOT EXISTS (
  SELECT FROM (
    SELECT k.task_ids, k.attempts FROM task_engine.limit_keys k
    WHERE k.limit_id = l.id AND k.key = task_engine.limit_key(
      coalesce(nullif(c.context -> 'limits' -> l.name, 'null'), c.task_parameters -> (l.options ->> 'key')))
    ORDER BY k.total DESC LIMIT 1
  ) AS k
  CROSS JOIN LATERAL unnest(k.task_ids, k.attempts) AS holder(task_id, attempt)
  WHERE holder.task_id = h.task_id AND holder.attempt = h.attempt)
UNION ALL
SELECT 'limit_key_twice', format('key %s of limit %s has %s rows', to_json(k.key), k.limit_id, count(*))
FROM task_engine.limit_keys k WHERE k.total > 0 GROUP BY k.limit_id, k.key HAVING count(*) > 1;

-- name: inventory
-- How much there is. Reads every row, like the checks that it goes with.
SELECT
  (SELECT count(*) FROM task_engine.created_tasks) AS tasks,
  (SELECT count(*) FROM task_engine.waiting_tasks) AS waiting,
  (SELECT count(*) FROM task_engine.held_attempts) AS running,
  (SELECT count(*) FROM task_engine.ended_executions) AS executions,
  (SELECT count(*) FROM task_engine.schedules) AS schedules,
  (SELECT count(*) FROM task_engine.steps) AS steps,
  (SELECT count(*) FROM task_engine.signals) AS signals,
  (SELECT count(*) FROM task_engine.suspended_tasks s
   JOIN task_engine.waiting_tasks w ON w.task_id = s.task_id AND w.attempt = s.attempt + 1) AS suspended;
