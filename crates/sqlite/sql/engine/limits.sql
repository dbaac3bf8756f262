-- name: limits_in_use
-- Whether a claim must look at limits, and the version of what it caches. Every claim reads
-- this: the ends of two small tables, and of task_engine_waiting_limited_lanes. Tasks of
-- removed limits may still wait in lanes of their own.
SELECT
    EXISTS (SELECT 1 FROM task_engine_limits)
    OR EXISTS (
        SELECT 1
        FROM task_engine_waiting_tasks INDEXED BY task_engine_waiting_limited_lanes
        WHERE lane_key IS NOT NULL
    ),
    (SELECT number FROM task_engine_limits_version WHERE id = 1);

-- name: limits
-- All limits. There are few.
SELECT id, name, target, target_name, declared, operator, changed_at
FROM task_engine_limits
ORDER BY name;

-- name: classes_naming_limits
-- The classes that have tasks that name limits. There are few.
SELECT task_class FROM task_engine_classes_naming_limits;

-- name: limit_exists
-- Whether there is a limit of this name. By the unique key.
SELECT 1 FROM task_engine_limits WHERE name = ?1;

-- name: class_names_limits
-- A class has tasks that name limits. By the key.
INSERT INTO task_engine_classes_naming_limits (task_class) VALUES (?1) ON CONFLICT DO NOTHING;

-- name: limits_changed
-- What claims have cached is out of date.
UPDATE task_engine_limits_version SET number = random();

-- name: limited_claim_lanes
-- As claim_lanes, of tasks that wait in lanes of their own: queues, classes and priorities
-- that have some. The queue is returned as in the waiting rows.
WITH RECURSIVE lanes (queue, task_class, priority) AS (
    SELECT
        char(31) || queues.value,
        classes.value,
        (
            SELECT max(waiting.priority)
            FROM task_engine_waiting_tasks AS waiting
            WHERE waiting.queue = char(31) || queues.value AND waiting.task_class = classes.value
        )
    FROM json_each(?1) AS queues CROSS JOIN json_each(?2) AS classes
    WHERE NOT EXISTS (
        SELECT 1 FROM task_engine_paused_queues AS paused WHERE paused.queue = queues.value
    )
    UNION ALL
    SELECT
        lanes.queue,
        lanes.task_class,
        (
            SELECT max(waiting.priority)
            FROM task_engine_waiting_tasks AS waiting
            WHERE waiting.queue = lanes.queue
                AND waiting.task_class = lanes.task_class
                AND waiting.priority < lanes.priority
        )
    FROM lanes
    WHERE lanes.priority > ?3
    ORDER BY 3 DESC
)
SELECT queue, task_class, priority FROM lanes WHERE priority >= ?3;

-- name: move_heads
-- The first tasks of a lane, due or not, with what their keys depend on. Reads the
-- beginning of a range of task_engine_waiting_lanes.
SELECT waiting.task_id, waiting.due_at, created.task_parameters, created.context
FROM task_engine_waiting_tasks AS waiting
LEFT JOIN task_engine_created_tasks AS created ON created.id = waiting.task_id
WHERE waiting.queue = ?1 AND waiting.task_class = ?2 AND waiting.priority = ?3
ORDER BY waiting.due_at, waiting.task_id
LIMIT ?4;

-- name: move_tails
-- The last due tasks of a lane. Reads a range of task_engine_waiting_lanes from its end.
SELECT waiting.task_id, waiting.due_at, created.task_parameters, created.context
FROM task_engine_waiting_tasks AS waiting
LEFT JOIN task_engine_created_tasks AS created ON created.id = waiting.task_id
WHERE waiting.queue = ?1 AND waiting.task_class = ?2 AND waiting.priority = ?3
    AND waiting.due_at <= ?4
ORDER BY waiting.due_at DESC, waiting.task_id DESC
LIMIT ?5;

-- name: lane_rows
-- The first tasks of a lane, with what their keys depend on. Reads the beginning of a range
-- of task_engine_waiting_limited_lanes.
SELECT waiting.task_id, waiting.due_at, created.task_parameters, created.context
FROM task_engine_waiting_tasks AS waiting INDEXED BY task_engine_waiting_limited_lanes
LEFT JOIN task_engine_created_tasks AS created ON created.id = waiting.task_id
WHERE waiting.queue = ?1 AND waiting.task_class = ?2 AND waiting.priority = ?3
    AND waiting.lane_key = ?4
ORDER BY waiting.due_at, waiting.task_id
LIMIT ?5;

-- name: move
-- A due task with limits moves to the lane of its keys. The only update of a waiting row: no
-- other column changes, and no other transaction sees the row in between. By its key.
UPDATE task_engine_waiting_tasks SET queue = ?2, lane_key = ?3 WHERE task_id = ?1;

-- name: move_back
-- Tasks of a class that name a limit (?2) leave the lanes of their keys, because the limit is
-- new. Reads the waiting rows of the class that have a lane key.
UPDATE task_engine_waiting_tasks
SET queue = substr(queue, 2), lane_key = NULL
WHERE lane_key IS NOT NULL
    AND task_class = ?1
    AND EXISTS (
        SELECT 1
        FROM task_engine_created_tasks AS created
        JOIN json_each(created.context, '$.limits') AS named ON named.key = ?2
        WHERE created.id = task_engine_waiting_tasks.task_id
    );

-- name: next_lane
-- The next lane of a queue, class and priority, with its first task. One search in
-- task_engine_waiting_limited_lanes, whatever the number of tasks in a lane.
SELECT lane_key, due_at, task_id
FROM task_engine_waiting_tasks INDEXED BY task_engine_waiting_limited_lanes
WHERE queue = ?1 AND task_class = ?2 AND priority = ?3 AND lane_key > ?4
ORDER BY lane_key, due_at, task_id
LIMIT 1;

-- name: lane_heads
-- The first tasks of a lane. Reads the beginning of a range of
-- task_engine_waiting_limited_lanes; the fields of a task by its key.
SELECT
    waiting.task_id, waiting.due_at, waiting.attempt, waiting.retry_number,
    created.task_parameters, created.context
FROM task_engine_waiting_tasks AS waiting INDEXED BY task_engine_waiting_limited_lanes
LEFT JOIN task_engine_created_tasks AS created ON created.id = waiting.task_id
WHERE waiting.queue = ?1 AND waiting.task_class = ?2 AND waiting.priority = ?3
    AND waiting.lane_key = ?4
ORDER BY waiting.due_at, waiting.task_id
LIMIT ?5;

-- name: lane_task
-- One task of a lane, as in lane_heads. By its key.
SELECT
    waiting.task_id, waiting.due_at, waiting.attempt, waiting.retry_number,
    created.task_parameters, created.context
FROM task_engine_waiting_tasks AS waiting
LEFT JOIN task_engine_created_tasks AS created ON created.id = waiting.task_id
WHERE waiting.task_id = ?1 AND waiting.queue = ?2 AND waiting.lane_key = ?3;

-- name: waiting_holder
-- The place of a task that holds a key in order, and what its keys depend on. By its key.
SELECT
    waiting.queue, waiting.task_class, waiting.priority, waiting.lane_key, waiting.due_at,
    created.task_parameters, created.context
FROM task_engine_waiting_tasks AS waiting
JOIN task_engine_created_tasks AS created ON created.id = waiting.task_id
WHERE waiting.task_id = ?1;

-- name: key_total
-- How many attempts of a key have started. By the key.
SELECT total FROM task_engine_limit_keys WHERE limit_id = ?1 AND key = ?2;

-- name: key_holders
-- The attempts that hold a key: those that have not ended, and those whose task waits for
-- another attempt, which counts for a limit in order. Not those of tasks that retention has
-- removed with their ends. By keys.
SELECT holder.task_id, holder.attempt, holder.is_running
FROM (
    SELECT
        each.value ->> 0 AS task_id,
        each.value ->> 1 AS attempt,
        NOT EXISTS (
            SELECT 1
            FROM task_engine_ended_executions AS ended
            WHERE ended.task_id = each.value ->> 0 AND ended.attempt = each.value ->> 1
        ) AS is_running
    FROM task_engine_limit_keys AS state, json_each(state.holders) AS each
    WHERE state.limit_id = ?1 AND state.key = ?2
) AS holder
WHERE EXISTS (SELECT 1 FROM task_engine_created_tasks AS created WHERE created.id = holder.task_id)
    AND (
        holder.is_running
        OR EXISTS (SELECT 1 FROM task_engine_waiting_tasks AS waiting WHERE waiting.task_id = holder.task_id)
    );

-- name: key_write
-- The state of a key after a claim. By the key.
INSERT INTO task_engine_limit_keys (limit_id, key, total, written_at, holders)
VALUES (?1, ?2, ?3, ?4, ?5)
ON CONFLICT (limit_id, key) DO UPDATE
SET total = excluded.total, written_at = excluded.written_at, holders = excluded.holders;

-- name: starts
-- The first starts of a key from a number on: as many as a claim wants. A range of the
-- primary key.
SELECT total, started_until
FROM task_engine_limit_starts
WHERE limit_id = ?1 AND key = ?2 AND total >= ?3
ORDER BY total
LIMIT ?4;

-- name: last_start
-- The last start of a key. The end of a range of the primary key.
SELECT started_until
FROM task_engine_limit_starts
WHERE limit_id = ?1 AND key = ?2
ORDER BY total DESC
LIMIT 1;

-- name: start_insert
-- Attempts of a key start. By the key.
INSERT INTO task_engine_limit_starts (limit_id, key, total, started_until)
VALUES (?1, ?2, ?3, ?4);

-- name: correct_starts
-- Starts of a key that were recorded before the clock was set back. A range of the primary key.
UPDATE task_engine_limit_starts SET started_until = ?3
WHERE limit_id = ?1 AND key = ?2 AND started_until > ?3;

-- name: starts_delete
-- Starts that the rate no longer counts. A range of the primary key.
DELETE FROM task_engine_limit_starts WHERE limit_id = ?1 AND key = ?2 AND total < ?3;

-- name: closed_key
-- Until when a key is closed, and why. By the key.
SELECT until, reason FROM task_engine_closed_keys WHERE limit_id = ?1 AND key = ?2;

-- name: waiting_take
-- A claimed task leaves its lane. By its key.
DELETE FROM task_engine_waiting_tasks WHERE task_id = ?1;

-- name: close_key
-- Closes a key of an existing limit. The longer time counts. By keys.
INSERT INTO task_engine_closed_keys (limit_id, key, until, reason)
SELECT id, ?2, ?3, ?4
FROM task_engine_limits
WHERE id = ?1
ON CONFLICT (limit_id, key) DO UPDATE
SET until = excluded.until, reason = excluded.reason
WHERE excluded.until > until;

-- name: running_tasks
-- All held attempts, with what their keys depend on. As many rows as busy workers, each by
-- its key.
SELECT
    held.task_id, held.attempt, created.task_class, created.queue,
    created.task_parameters, created.context
FROM task_engine_held_attempts AS held
CROSS JOIN task_engine_created_tasks AS created ON created.id = held.task_id
ORDER BY held.claimed_at, held.task_id;

-- name: prune_keys
-- Removes up to ?3 keys of a limit (?1) that were not used since a time (?2) and that no
-- attempt holds. Reads the keys of the limit; holders by their keys.
DELETE FROM task_engine_limit_keys
WHERE (limit_id, key) IN (
    SELECT state.limit_id, state.key
    FROM task_engine_limit_keys AS state
    WHERE state.limit_id = ?1
        AND state.written_at < ?2
        AND NOT EXISTS (
            SELECT 1
            FROM json_each(state.holders) AS holder
            JOIN task_engine_created_tasks AS created ON created.id = holder.value ->> 0
            WHERE NOT EXISTS (
                    SELECT 1
                    FROM task_engine_ended_executions AS ended
                    WHERE ended.task_id = created.id AND ended.attempt = holder.value ->> 1
                )
                OR EXISTS (
                    SELECT 1 FROM task_engine_waiting_tasks AS waiting WHERE waiting.task_id = created.id
                )
        )
    LIMIT ?3
);

-- name: prune_starts
-- Starts of keys of a limit that were removed. Reads the starts of the limit.
DELETE FROM task_engine_limit_starts
WHERE limit_id = ?1
    AND NOT EXISTS (
        SELECT 1
        FROM task_engine_limit_keys AS state
        WHERE state.limit_id = task_engine_limit_starts.limit_id
            AND state.key = task_engine_limit_starts.key
    );

-- name: prune_closed_keys
-- Keys that are open again. There are few closed keys.
DELETE FROM task_engine_closed_keys WHERE until <= ?1;

-- name: prune_removed_keys
-- Up to ?1 keys of removed limits.
DELETE FROM task_engine_limit_keys
WHERE (limit_id, key) IN (
    SELECT limit_id, key
    FROM task_engine_limit_keys
    WHERE limit_id NOT IN (SELECT id FROM task_engine_limits)
    LIMIT ?1
);

-- name: prune_removed_starts
-- The starts of removed limits.
DELETE FROM task_engine_limit_starts WHERE limit_id NOT IN (SELECT id FROM task_engine_limits);

-- name: prune_removed_closed_keys
-- The closed keys of removed limits.
DELETE FROM task_engine_closed_keys WHERE limit_id NOT IN (SELECT id FROM task_engine_limits);
