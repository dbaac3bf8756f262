-- name: scan_bound_all
-- How far a step of a search goes: the lowest of the newest $3 ids of its source,
-- and how many there are. It runs before the step, which then reads everything
-- above: a row that exists all the time is not skipped, even if others move. Of a
-- source with several parts, each part returns at most $3 rows by its key, so that a
-- large part does not slow down the others.
SELECT min(s.id) AS lowest, count(*) AS rows, clock_timestamp() AS now
FROM (
  SELECT a.id FROM task_engine.created_tasks a WHERE a.id >= $1 AND a.id < $2
  ORDER BY a.id DESC LIMIT $3
) AS s;

-- name: scan_bound_flow
-- Of the flow $4, by the index created_tasks_by_correlation, with the task $5 whose
-- own id is the name of the flow, if it has no other.
SELECT min(s.id) AS lowest, count(*) AS rows, clock_timestamp() AS now
FROM (
  SELECT b.id FROM (
    (SELECT m.id FROM task_engine.created_tasks m
     WHERE m.context->>'correlation_id' = $4 AND m.id >= $1 AND m.id < $2
     ORDER BY id DESC LIMIT $3)
    UNION ALL
    (SELECT o.id FROM task_engine.created_tasks o
     WHERE o.id = $5 AND o.id >= $1 AND o.id < $2 AND (o.context->>'correlation_id') IS NULL
     ORDER BY id DESC LIMIT $3)
  ) AS b ORDER BY b.id DESC LIMIT $3
) AS s;

-- name: scan_bound_ids
-- Of the ids $4.
SELECT min(s.id) AS lowest, count(*) AS rows, clock_timestamp() AS now
FROM (
  SELECT i.id FROM task_engine.created_tasks i
  WHERE i.id = ANY ($4::bigint[]) AND i.id >= $1 AND i.id < $2
  ORDER BY i.id DESC LIMIT $3
) AS s;

-- name: scan_bound_status
-- Of waiting ($4) and running ($5) tasks, and of those that ended in a status of $6.
-- Failed and cancelled tasks are separate parts, each in the order of the index
-- ended_executions_failed_or_cancelled: for both at once the planner has no order, and
-- would read all history backwards by the primary key. Only the last attempt of a task
-- counts: so no task comes twice.
SELECT min(s.id) AS lowest, count(*) AS rows, clock_timestamp() AS now
FROM (
  SELECT b.id FROM (
    (SELECT w.task_id AS id FROM task_engine.waiting_tasks w WHERE $4::boolean AND w.task_id >= $1 AND w.task_id < $2
     ORDER BY id DESC LIMIT $3)
    UNION ALL
    (SELECT h.task_id AS id FROM task_engine.held_attempts h WHERE $5::boolean AND h.task_id >= $1 AND h.task_id < $2
     ORDER BY id DESC LIMIT $3)
    UNION ALL
    (SELECT e.task_id AS id FROM task_engine.ended_executions e
     WHERE 'failed' = ANY ($6::text[]) AND e.ends_task = 'failed'
       AND e.task_id >= $1 AND e.task_id < $2
       AND NOT EXISTS (SELECT FROM task_engine.ended_executions later
                       WHERE later.task_id = e.task_id AND later.attempt > e.attempt)
       AND NOT EXISTS (SELECT FROM task_engine.waiting_tasks w WHERE w.task_id = e.task_id)
       AND NOT EXISTS (SELECT FROM task_engine.claims k WHERE k.task_ids @> ARRAY[e.task_id]
                       AND k.attempts[array_position(k.task_ids, e.task_id)] > e.attempt)
     ORDER BY id DESC LIMIT $3)
    UNION ALL
    (SELECT e.task_id AS id FROM task_engine.ended_executions e
     WHERE 'cancelled' = ANY ($6::text[]) AND e.ends_task = 'cancelled'
       AND e.task_id >= $1 AND e.task_id < $2
       AND NOT EXISTS (SELECT FROM task_engine.ended_executions later
                       WHERE later.task_id = e.task_id AND later.attempt > e.attempt)
       AND NOT EXISTS (SELECT FROM task_engine.waiting_tasks w WHERE w.task_id = e.task_id)
       AND NOT EXISTS (SELECT FROM task_engine.claims k WHERE k.task_ids @> ARRAY[e.task_id]
                       AND k.attempts[array_position(k.task_ids, e.task_id)] > e.attempt)
     ORDER BY id DESC LIMIT $3)
  ) AS b ORDER BY b.id DESC LIMIT $3
) AS s;

-- name: scan_all
-- A step of a search, newest first: ids of its source, filtered by columns; the
-- rest from the view by id. $1 and $2: the range of ids, $3 the limit, $4 classes,
-- $5 queues, $6 and $7 the time of creation, $8 and $9 the time when an attempt
-- ended (each may be null), $10 only with an error, $11 with JSON.
-- Conditions on ended_executions are scalar subqueries: the planner never turns one
-- into a scan of all history, but probes the key for each row.
SELECT t.id, t.status::text, t.task_class, t.queue, t.priority, t.created_at, t.scheduled_at,
  t.updated_at, t.attempts, t.retry_number, t.instance, task_engine.readable(t.error) AS error,
  t.is_blocked,
  t.correlation_id, t.parent_id,
  last.started_at AS last_started_at, last.stopped_at AS last_stopped_at,
  CASE WHEN $11 THEN task_engine.readable(t.task_parameters) END AS task_parameters,
  CASE WHEN $11 THEN task_engine.readable(o.context) END AS context
FROM task_engine.tasks t JOIN task_engine.created_tasks o ON o.id = t.id
LEFT JOIN LATERAL (
  SELECT l.started_at, l.stopped_at FROM task_engine.ended_executions l
  WHERE l.task_id = t.id ORDER BY l.attempt DESC LIMIT 1
) AS last ON true
WHERE t.id = ANY (ARRAY(
  SELECT c.id FROM task_engine.created_tasks c
  WHERE c.id >= $1 AND c.id < $2
    AND ($4::text[] IS NULL OR c.task_class = ANY ($4))
    AND ($5::text[] IS NULL OR c.queue = ANY ($5))
    AND ($6::timestamptz IS NULL OR c.created_at >= $6)
    AND ($7::timestamptz IS NULL OR c.created_at <= $7)
    AND (($8::timestamptz IS NULL AND $9::timestamptz IS NULL) OR (
      SELECT true FROM task_engine.ended_executions x
      WHERE x.task_id = c.id AND ($8 IS NULL OR x.stopped_at >= $8) AND ($9 IS NULL OR x.stopped_at <= $9)
      LIMIT 1))
    AND (NOT $10::boolean OR (
      SELECT true FROM task_engine.ended_executions x
      WHERE x.task_id = c.id AND x.error IS NOT NULL LIMIT 1))
  ORDER BY c.id DESC LIMIT $3))
ORDER BY t.id DESC;

-- name: scan_flow
-- $12 and $13 as in scan_bound_flow.
SELECT t.id, t.status::text, t.task_class, t.queue, t.priority, t.created_at, t.scheduled_at,
  t.updated_at, t.attempts, t.retry_number, t.instance, task_engine.readable(t.error) AS error,
  t.is_blocked,
  t.correlation_id, t.parent_id,
  last.started_at AS last_started_at, last.stopped_at AS last_stopped_at,
  CASE WHEN $11 THEN task_engine.readable(t.task_parameters) END AS task_parameters,
  CASE WHEN $11 THEN task_engine.readable(o.context) END AS context
FROM task_engine.tasks t JOIN task_engine.created_tasks o ON o.id = t.id
LEFT JOIN LATERAL (
  SELECT l.started_at, l.stopped_at FROM task_engine.ended_executions l
  WHERE l.task_id = t.id ORDER BY l.attempt DESC LIMIT 1
) AS last ON true
WHERE t.id = ANY (ARRAY(
  SELECT c.id FROM task_engine.created_tasks c
  WHERE c.id = ANY (ARRAY(SELECT b.id FROM (
      SELECT m.id FROM task_engine.created_tasks m
      WHERE m.context->>'correlation_id' = $12 AND m.id >= $1 AND m.id < $2
      UNION ALL
      SELECT o.id FROM task_engine.created_tasks o
      WHERE o.id = $13 AND o.id >= $1 AND o.id < $2 AND (o.context->>'correlation_id') IS NULL
    ) AS b))
    AND ($4::text[] IS NULL OR c.task_class = ANY ($4))
    AND ($5::text[] IS NULL OR c.queue = ANY ($5))
    AND ($6::timestamptz IS NULL OR c.created_at >= $6)
    AND ($7::timestamptz IS NULL OR c.created_at <= $7)
    AND (($8::timestamptz IS NULL AND $9::timestamptz IS NULL) OR (
      SELECT true FROM task_engine.ended_executions x
      WHERE x.task_id = c.id AND ($8 IS NULL OR x.stopped_at >= $8) AND ($9 IS NULL OR x.stopped_at <= $9)
      LIMIT 1))
    AND (NOT $10::boolean OR (
      SELECT true FROM task_engine.ended_executions x
      WHERE x.task_id = c.id AND x.error IS NOT NULL LIMIT 1))
  ORDER BY c.id DESC LIMIT $3))
ORDER BY t.id DESC;

-- name: scan_ids
-- $12 as in scan_bound_ids.
SELECT t.id, t.status::text, t.task_class, t.queue, t.priority, t.created_at, t.scheduled_at,
  t.updated_at, t.attempts, t.retry_number, t.instance, task_engine.readable(t.error) AS error,
  t.is_blocked,
  t.correlation_id, t.parent_id,
  last.started_at AS last_started_at, last.stopped_at AS last_stopped_at,
  CASE WHEN $11 THEN task_engine.readable(t.task_parameters) END AS task_parameters,
  CASE WHEN $11 THEN task_engine.readable(o.context) END AS context
FROM task_engine.tasks t JOIN task_engine.created_tasks o ON o.id = t.id
LEFT JOIN LATERAL (
  SELECT l.started_at, l.stopped_at FROM task_engine.ended_executions l
  WHERE l.task_id = t.id ORDER BY l.attempt DESC LIMIT 1
) AS last ON true
WHERE t.id = ANY (ARRAY(
  SELECT c.id FROM task_engine.created_tasks c
  WHERE c.id = ANY (ARRAY(SELECT b.id FROM (
      SELECT i.id FROM task_engine.created_tasks i
      WHERE i.id = ANY ($12::bigint[]) AND i.id >= $1 AND i.id < $2
    ) AS b))
    AND ($4::text[] IS NULL OR c.task_class = ANY ($4))
    AND ($5::text[] IS NULL OR c.queue = ANY ($5))
    AND ($6::timestamptz IS NULL OR c.created_at >= $6)
    AND ($7::timestamptz IS NULL OR c.created_at <= $7)
    AND (($8::timestamptz IS NULL AND $9::timestamptz IS NULL) OR (
      SELECT true FROM task_engine.ended_executions x
      WHERE x.task_id = c.id AND ($8 IS NULL OR x.stopped_at >= $8) AND ($9 IS NULL OR x.stopped_at <= $9)
      LIMIT 1))
    AND (NOT $10::boolean OR (
      SELECT true FROM task_engine.ended_executions x
      WHERE x.task_id = c.id AND x.error IS NOT NULL LIMIT 1))
  ORDER BY c.id DESC LIMIT $3))
ORDER BY t.id DESC;

-- name: scan_status
-- $12 to $14 as in scan_bound_status.
SELECT t.id, t.status::text, t.task_class, t.queue, t.priority, t.created_at, t.scheduled_at,
  t.updated_at, t.attempts, t.retry_number, t.instance, task_engine.readable(t.error) AS error,
  t.is_blocked,
  t.correlation_id, t.parent_id,
  last.started_at AS last_started_at, last.stopped_at AS last_stopped_at,
  CASE WHEN $11 THEN task_engine.readable(t.task_parameters) END AS task_parameters,
  CASE WHEN $11 THEN task_engine.readable(o.context) END AS context
FROM task_engine.tasks t JOIN task_engine.created_tasks o ON o.id = t.id
LEFT JOIN LATERAL (
  SELECT l.started_at, l.stopped_at FROM task_engine.ended_executions l
  WHERE l.task_id = t.id ORDER BY l.attempt DESC LIMIT 1
) AS last ON true
WHERE t.id = ANY (ARRAY(
  SELECT c.id FROM task_engine.created_tasks c
  WHERE c.id = ANY (ARRAY(SELECT b.id FROM (
      SELECT w.task_id AS id FROM task_engine.waiting_tasks w WHERE $12::boolean AND w.task_id >= $1 AND w.task_id < $2
      UNION ALL
      SELECT h.task_id AS id FROM task_engine.held_attempts h WHERE $13::boolean AND h.task_id >= $1 AND h.task_id < $2
      UNION ALL
      SELECT e.task_id AS id FROM task_engine.ended_executions e
      WHERE e.ends_task IN ('failed', 'cancelled') AND e.ends_task = ANY ($14::text[]::task_engine.task_status[])
        AND e.task_id >= $1 AND e.task_id < $2
        AND NOT EXISTS (SELECT FROM task_engine.ended_executions later
                        WHERE later.task_id = e.task_id AND later.attempt > e.attempt)
        AND NOT EXISTS (SELECT FROM task_engine.waiting_tasks w WHERE w.task_id = e.task_id)
        AND NOT EXISTS (SELECT FROM task_engine.claims k WHERE k.task_ids @> ARRAY[e.task_id]
                        AND k.attempts[array_position(k.task_ids, e.task_id)] > e.attempt)
    ) AS b))
    AND ($4::text[] IS NULL OR c.task_class = ANY ($4))
    AND ($5::text[] IS NULL OR c.queue = ANY ($5))
    AND ($6::timestamptz IS NULL OR c.created_at >= $6)
    AND ($7::timestamptz IS NULL OR c.created_at <= $7)
    AND (($8::timestamptz IS NULL AND $9::timestamptz IS NULL) OR (
      SELECT true FROM task_engine.ended_executions x
      WHERE x.task_id = c.id AND ($8 IS NULL OR x.stopped_at >= $8) AND ($9 IS NULL OR x.stopped_at <= $9)
      LIMIT 1))
    AND (NOT $10::boolean OR (
      SELECT true FROM task_engine.ended_executions x
      WHERE x.task_id = c.id AND x.error IS NOT NULL LIMIT 1))
  ORDER BY c.id DESC LIMIT $3))
ORDER BY t.id DESC;

-- name: creation_times
-- The nearest task at or below each of the ids $1, and when it was created: one
-- probe of the primary key each.
SELECT c.id, c.created_at, clock_timestamp() AS now
FROM unnest($1::bigint[]) WITH ORDINALITY AS p (id, place)
LEFT JOIN LATERAL (
  SELECT n.id, n.created_at FROM task_engine.created_tasks n
  WHERE n.id <= p.id ORDER BY n.id DESC LIMIT 1
) AS c ON true
ORDER BY p.place;
