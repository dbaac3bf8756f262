-- name: limits
-- All limits, by name.
SELECT id, name, task_class, queue, options, declared, set_by_operator, changed_at
FROM task_engine.limits ORDER BY name;

-- name: limited_lanes_in_use
-- Lanes of keys ($1 of them, after each other in the index), each with its first task and
-- its number of tasks, counted up to $2. One probe of waiting_tasks_by_limited_lane for each.
WITH RECURSIVE lane AS (
  (
    SELECT w.queue, w.task_class, w.priority, w.lane_key, w.due_at, 1 AS number
    FROM task_engine.waiting_tasks w
    WHERE w.lane_key IS NOT NULL
    ORDER BY w.queue COLLATE "C", w.task_class COLLATE "C", w.priority, w.lane_key, w.due_at
    LIMIT 1
  )
  UNION ALL
  SELECT next.queue, next.task_class, next.priority, next.lane_key, next.due_at, lane.number + 1
  FROM lane
  CROSS JOIN LATERAL (
    SELECT w.queue, w.task_class, w.priority, w.lane_key, w.due_at
    FROM task_engine.waiting_tasks w
    WHERE w.lane_key IS NOT NULL AND
      (w.queue COLLATE "C", w.task_class COLLATE "C", w.priority, w.lane_key) > (lane.queue, lane.task_class, lane.priority, lane.lane_key)
    ORDER BY w.queue COLLATE "C", w.task_class COLLATE "C", w.priority, w.lane_key, w.due_at
    LIMIT 1
  ) AS next
  WHERE lane.number < $1::integer
)
SELECT lane.queue, lane.task_class, lane.priority, lane.lane_key, lane.due_at, counted.tasks
FROM lane
CROSS JOIN LATERAL (
  SELECT count(*) AS tasks FROM (
    SELECT FROM task_engine.waiting_tasks w
    WHERE w.queue COLLATE "C" = lane.queue AND w.task_class COLLATE "C" = lane.task_class AND w.priority = lane.priority
      AND w.lane_key BETWEEN lane.lane_key AND lane.lane_key LIMIT $2::bigint) AS some_of_them
) AS counted;

-- name: limit_keys_in_use
-- Keys with a state, the first $2 of one limit ($1) or of all, and closed keys. One probe of
-- the primary key for each.
WITH RECURSIVE known AS (
  (
    SELECT k.limit_id, k.key, 1 AS number FROM task_engine.limit_keys k
    WHERE k.limit_id >= coalesce($1::integer, 0)
    ORDER BY k.limit_id, k.key LIMIT 1
  )
  UNION ALL
  SELECT next.limit_id, next.key, known.number + 1
  FROM known
  CROSS JOIN LATERAL (
    SELECT k.limit_id, k.key FROM task_engine.limit_keys k
    WHERE (k.limit_id, k.key) > (known.limit_id, known.key)
    ORDER BY k.limit_id, k.key LIMIT 1
  ) AS next
  WHERE known.number < $2::integer
    AND ($1::integer IS NULL OR next.limit_id = $1::integer)
)
SELECT limit_id, key FROM known WHERE $1::integer IS NULL OR limit_id = $1::integer
UNION
(SELECT c.limit_id, c.key FROM task_engine.closed_keys c
 WHERE ($1::integer IS NULL OR c.limit_id = $1::integer) AND c.closed_until > clock_timestamp()
 LIMIT $2::integer)
ORDER BY 1, 2;

-- name: task_lane_key
-- The limits of a task and their keys, by its parameters and context.
SELECT coalesce(task_engine.task_keys(c.task_class, c.queue, c.task_parameters, c.context), '[]')
  AS lane_key
FROM task_engine.created_tasks c WHERE c.id = $1;
