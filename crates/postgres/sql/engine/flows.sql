-- name: create_flow
-- Creates the tasks of a flow, all or none. Tasks that depend on others are blocked. See the
-- function for the details. $6: delays in microseconds; $13 to $16, side by side: the places
-- of dependent tasks, the places or the ids of the tasks that they depend on, and conditions.
SELECT f.task_id, f.correlation_id FROM task_engine.create_flow_tasks(
  $1::text, $2::text, $3::text[], $4::jsonb[], $5::timestamptz[],
  (SELECT array_agg(d.us * interval '1 microsecond' ORDER BY d.place)
   FROM unnest($6::bigint[]) WITH ORDINALITY AS d(us, place)),
  $7::integer[], $8::text[], $9::jsonb[], $10::text[], $11::text[], $12::text[],
  $13::integer[], $14::integer[], $15::bigint[], $16::text[]) AS f;

-- name: create_flow_from_text
-- As create_flow, with times and JSON as text: for drivers without types for them.
SELECT f.task_id, f.correlation_id FROM task_engine.create_flow_tasks(
  $1::text, $2::text, $3::text[], $4::text[]::jsonb[], $5::text[]::timestamptz[],
  (SELECT array_agg(d.us * interval '1 microsecond' ORDER BY d.place)
   FROM unnest($6::bigint[]) WITH ORDINALITY AS d(us, place)),
  $7::integer[], $8::text[], $9::text[]::jsonb[], $10::text[], $11::text[], $12::text[],
  $13::integer[], $14::integer[], $15::bigint[], $16::text[]) AS f;

-- name: resolve
-- Decides about the tasks that depend on these ended tasks ($1), about these tasks ($2), and
-- about those that depend on the ones that this cancels; and finds the suspended parents that watch one of them. One round
-- trip, and one commit if anything changes. By the indexes of watched tasks and by keys: see
-- the function.
SELECT r.resumed, r.watching,
  ARRAY(SELECT s.task_id FROM task_engine.suspended_tasks s
        WHERE s.watching = ANY ($1::bigint[]) AND task_engine.has_ended(s.watching)) AS parents
FROM task_engine.resolve_dependents($1::bigint[], $2::bigint[]) AS r;

-- name: member_fence
-- Whether an attempt is held and has not ended.
SELECT EXISTS (
    SELECT FROM task_engine.claims k
    CROSS JOIN LATERAL unnest(k.task_ids, k.attempts) AS h(task_id, attempt)
    WHERE k.id = $3 AND h.task_id = $1 AND h.attempt = $2)
  AND NOT EXISTS (
    SELECT FROM task_engine.ended_executions e WHERE e.task_id = $1 AND e.attempt = $2) AS held;

-- name: lock_dependents
-- The tasks that depend on a running one ($1), the blocked ones locked. Waits for those that
-- another transaction has locked: each of them locks them briefly.
SELECT s.task_id FROM task_engine.suspended_tasks s
WHERE s.blocked_on IS NOT NULL AND s.task_id = ANY (ARRAY(
  SELECT d.task_id FROM task_engine.task_dependencies d
  WHERE d.depends_on = $1 AND d.condition IS NOT NULL))
ORDER BY s.task_id FOR UPDATE;

-- name: dependents_to_extend
-- After the locks: the tasks that depend on a running one ($1) and will depend on its members,
-- too. They are blocked, or were cancelled because of another member: a retry restores them.
SELECT d.task_id, w.task_id IS NOT NULL AS is_blocked
FROM task_engine.task_dependencies d
LEFT JOIN task_engine.waiting_tasks w ON w.task_id = d.task_id AND left(w.queue, 1) = chr(30)
WHERE d.depends_on = $1 AND d.condition IS NOT NULL
  AND (w.task_id IS NOT NULL OR (
    SELECT t.status = 'cancelled' AND t.error ->> 'exception' = 'DependencyFailed'
    FROM task_engine.tasks t WHERE t.id = d.task_id));

-- name: add_member_dependencies
-- These tasks ($2) depend on the members ($3), too, under the conditions under which they
-- depend on the running task ($1).
INSERT INTO task_engine.task_dependencies (task_id, depends_on, condition)
SELECT d.task_id, m.id, d.condition
FROM unnest($2::bigint[]) AS b(id)
JOIN task_engine.task_dependencies d ON d.task_id = b.id AND d.depends_on = $1
CROSS JOIN unnest($3::bigint[]) AS m(id)
ORDER BY d.task_id, m.id
ON CONFLICT DO NOTHING;

-- name: dependencies
-- What these tasks depend on. Ranges of the primary key; the states by id.
SELECT d.task_id, d.depends_on, d.condition,
  CASE WHEN jsonb_typeof(c.context -> 'flow_task') = 'string' THEN c.context ->> 'flow_task' END AS name,
  (SELECT t.status::text FROM task_engine.tasks t WHERE t.id = d.depends_on) AS status
FROM (
  SELECT x.task_id, x.depends_on, x.condition
  FROM task_engine.task_dependencies x
  WHERE x.task_id = ANY ($1) AND x.condition IS NOT NULL
  ORDER BY x.task_id, x.depends_on LIMIT $2
) AS d
LEFT JOIN task_engine.created_tasks c ON c.id = d.depends_on
ORDER BY d.task_id, d.depends_on;

-- name: dependents
-- Which tasks depend on this one. By the index task_dependencies_by_child.
SELECT d.task_id, d.depends_on, d.condition, p.name, p.status
FROM (
  SELECT x.task_id, x.depends_on, x.condition
  FROM task_engine.task_dependencies x
  WHERE x.depends_on = $1 AND x.condition IS NOT NULL
  ORDER BY x.task_id LIMIT $2
) AS d
LEFT JOIN LATERAL (
  SELECT CASE WHEN jsonb_typeof(c.context -> 'flow_task') = 'string' THEN c.context ->> 'flow_task' END AS name,
    t.status::text
  FROM task_engine.tasks t JOIN task_engine.created_tasks c ON c.id = t.id
  WHERE t.id = $1
) AS p ON true
ORDER BY d.task_id;

-- name: blocked_tasks
-- The blocked tasks, up to $1, first those that wait for the lowest ids; and whether what they
-- wait for ended more than a minute ago, or was removed. By the index suspended_tasks_by_blocked,
-- and by keys.
SELECT b.task_id, coalesce((
    SELECT e.ends_task IS NOT NULL AND e.stopped_at < clock_timestamp() - interval '1 minute'
      AND (SELECT r.attempt FROM task_engine.reopened_tasks r
           WHERE r.task_id = e.task_id AND r.attempt = e.attempt) IS NULL
    FROM task_engine.ended_executions e
    WHERE e.task_id = b.blocked_on ORDER BY e.attempt DESC LIMIT 1),
  (SELECT c.id FROM task_engine.created_tasks c WHERE c.id = b.blocked_on) IS NULL) AS is_overdue
FROM (
  SELECT s.task_id, s.blocked_on
  FROM task_engine.suspended_tasks s
  CROSS JOIN LATERAL (
    SELECT FROM task_engine.waiting_tasks w
    WHERE w.task_id = s.task_id AND w.attempt = s.attempt + 1 AND left(w.queue, 1) = chr(30)
    LIMIT 1
  ) AS w
  WHERE s.blocked_on > 0
  ORDER BY s.blocked_on LIMIT $1
) AS b;

-- name: flows
-- A page of flows below an id ($2), or the flow with a correlation id ($1), each with its
-- tasks counted up to $4. By the index created_tasks_by_correlation, and the task that the
-- correlation id names, if it has none of its own.
SELECT f.id, f.correlation_id, f.name, f.created_at, n.*
FROM (
  SELECT x.* FROM task_engine.flows x
  WHERE ($1::text IS NULL OR x.correlation_id = $1) AND x.id < $2
  ORDER BY x.id DESC LIMIT $3
) AS f
CROSS JOIN LATERAL (
  SELECT
    count(*) FILTER (WHERE t.place <= $4::bigint AND t.is_blocked) AS blocked,
    count(*) FILTER (WHERE t.place <= $4::bigint AND t.status = 'waiting' AND NOT t.is_blocked) AS waiting,
    count(*) FILTER (WHERE t.place <= $4::bigint AND t.status = 'running') AS running,
    count(*) FILTER (WHERE t.place <= $4::bigint AND t.status = 'stopped') AS stopped,
    count(*) FILTER (WHERE t.place <= $4::bigint AND t.status = 'failed') AS failed,
    count(*) FILTER (WHERE t.place <= $4::bigint AND t.status = 'cancelled' AND NOT t.not_needed) AS cancelled,
    count(*) FILTER (WHERE t.place <= $4::bigint AND t.status = 'cancelled' AND t.not_needed) AS not_needed,
    count(*) > $4::bigint AS and_more
  FROM (
    SELECT s.status, s.is_blocked, s.not_needed, row_number() OVER () AS place
    FROM (
      (SELECT o.id FROM task_engine.created_tasks o
       WHERE o.id = CASE WHEN f.correlation_id ~ '^[1-9][0-9]{0,17}$' THEN f.correlation_id::bigint END
         AND (o.context->>'correlation_id') IS NULL)
      UNION ALL
      (SELECT m.id FROM task_engine.created_tasks m
       WHERE m.context->>'correlation_id' = f.correlation_id
       ORDER BY m.context->>'correlation_id', m.id LIMIT $4::bigint + 1)
    ) AS i
    CROSS JOIN LATERAL (
      SELECT v.status, v.is_blocked,
        coalesce(v.error ->> 'exception' = 'NotNeeded', false) AS not_needed
      FROM task_engine.tasks v WHERE v.id = i.id
    ) AS s
    LIMIT $4::bigint + 1
  ) AS t
) AS n
ORDER BY f.id DESC;

-- name: lock_flows_to_prune
-- Flows without tasks, of up to $2 flows from an id ($1) up. A flow that a creation has locked
-- is left for later.
SELECT f.id FROM task_engine.flows f
WHERE f.id = ANY (ARRAY(SELECT x.id FROM task_engine.flows x WHERE x.id >= $1 ORDER BY x.id LIMIT $2))
  AND (SELECT c.id FROM task_engine.created_tasks c
       WHERE c.context->>'correlation_id' = f.correlation_id LIMIT 1) IS NULL
  AND (SELECT c.id FROM task_engine.created_tasks c
       WHERE c.id = CASE WHEN f.correlation_id ~ '^[1-9][0-9]{0,17}$' THEN f.correlation_id::bigint END) IS NULL
ORDER BY f.id LIMIT $3
FOR UPDATE SKIP LOCKED;

-- name: prune_flows
-- Of the locked flows, those that still have no tasks.
DELETE FROM task_engine.flows f
WHERE f.id = ANY ($1)
  AND (SELECT c.id FROM task_engine.created_tasks c
       WHERE c.context->>'correlation_id' = f.correlation_id LIMIT 1) IS NULL;

-- name: random_flow
-- A random id of a flow, from which to look for flows to prune.
SELECT coalesce((SELECT min(id) FROM task_engine.flows), 0) AS first,
  coalesce((SELECT max(id) FROM task_engine.flows), 0) AS last;
