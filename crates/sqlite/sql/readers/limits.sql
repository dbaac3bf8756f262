-- name: next_lane
-- The next lane of all that have waiting tasks: four searches in
-- task_engine_waiting_limited_lanes, as in queues_next_lane.
SELECT queue, task_class, priority, lane_key, due_at
FROM (
    SELECT queue, task_class, priority, lane_key, due_at
    FROM task_engine_waiting_tasks INDEXED BY task_engine_waiting_limited_lanes
    WHERE queue = ?1 AND task_class = ?2 AND priority = ?3 AND lane_key > ?4
    ORDER BY lane_key, due_at
    LIMIT 1
)
UNION ALL
SELECT queue, task_class, priority, lane_key, due_at
FROM (
    SELECT queue, task_class, priority, lane_key, due_at
    FROM task_engine_waiting_tasks INDEXED BY task_engine_waiting_limited_lanes
    WHERE queue = ?1 AND task_class = ?2 AND priority > ?3 AND lane_key IS NOT NULL
    ORDER BY priority, lane_key, due_at
    LIMIT 1
)
UNION ALL
SELECT queue, task_class, priority, lane_key, due_at
FROM (
    SELECT queue, task_class, priority, lane_key, due_at
    FROM task_engine_waiting_tasks INDEXED BY task_engine_waiting_limited_lanes
    WHERE queue = ?1 AND task_class > ?2 AND lane_key IS NOT NULL
    ORDER BY task_class, priority, lane_key, due_at
    LIMIT 1
)
UNION ALL
SELECT queue, task_class, priority, lane_key, due_at
FROM (
    SELECT queue, task_class, priority, lane_key, due_at
    FROM task_engine_waiting_tasks INDEXED BY task_engine_waiting_limited_lanes
    WHERE queue > ?1 AND lane_key IS NOT NULL
    ORDER BY queue, task_class, priority, lane_key, due_at
    LIMIT 1
)
LIMIT 1;

-- name: lane_count
-- How many tasks wait in a lane, up to ?5. A range of task_engine_waiting_limited_lanes.
SELECT count(*)
FROM (
    SELECT 1
    FROM task_engine_waiting_tasks INDEXED BY task_engine_waiting_limited_lanes
    WHERE queue = ?1 AND task_class = ?2 AND priority = ?3 AND lane_key = ?4
    LIMIT ?5
);

-- name: keys
-- The keys of a limit that attempts have held, or that are closed. Ranges of primary keys.
SELECT key FROM task_engine_limit_keys WHERE limit_id = ?1
UNION
SELECT key FROM task_engine_closed_keys WHERE limit_id = ?1 AND until > ?2
ORDER BY 1
LIMIT ?3;

-- name: task_keys
-- What the keys of a task depend on. By its key.
SELECT task_class, queue, task_parameters, context
FROM task_engine_created_tasks
WHERE id = ?1;

-- name: written_at
-- When the last attempt of a key started. By the key.
SELECT written_at, total FROM task_engine_limit_keys WHERE limit_id = ?1 AND key = ?2;
