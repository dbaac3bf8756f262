-- name: last_times
-- When the last attempt of a task began and ended. The end of a range of the
-- primary key.
SELECT started_at, stopped_at
FROM task_engine_ended_executions
WHERE task_id = ?1
ORDER BY attempt DESC
LIMIT 1;

-- name: creation_times
-- The nearest task at or below an id: one search of the primary key.
SELECT id, created_at
FROM task_engine_created_tasks
WHERE id <= ?1
ORDER BY id DESC
LIMIT 1;

-- name: scan_bound_all
-- How far a step of a search goes: the lowest of the newest ?3 ids of its source,
-- and how many there are.
SELECT min(id), count(*)
FROM (
    SELECT id FROM task_engine_created_tasks WHERE id >= ?1 AND id < ?2
    ORDER BY id DESC LIMIT ?3
);

-- name: scan_bound_flow
-- Of the flow ?8, by the index task_engine_created_by_correlation, with the task ?9
-- whose own id is the name of the flow, if it has no other.
SELECT min(id), count(*)
FROM (
    SELECT member.id
    FROM task_engine_created_tasks AS member
    WHERE member.context <> '{}'
        AND member.context ->> '$.correlation_id' IS NOT NULL
        AND member.context ->> '$.correlation_id' = ?8
        AND member.id >= ?1
        AND member.id < ?2
    UNION ALL
    SELECT own.id
    FROM task_engine_created_tasks AS own
    WHERE own.id = ?9 AND own.id >= ?1 AND own.id < ?2 AND own.context ->> '$.correlation_id' IS NULL
    ORDER BY id DESC LIMIT ?3
);

-- name: scan_bound_ids
-- Of the ids ?13, a JSON array.
SELECT min(id), count(*)
FROM (
    SELECT id FROM task_engine_created_tasks WHERE id IN (SELECT value FROM json_each(?13)) AND id >= ?1 AND id < ?2
    ORDER BY id DESC LIMIT ?3
);

-- name: scan_bound_status
-- Of tasks that wait (if ?14), run (?15), have failed (?16) or were cancelled (?17). The
-- parts are merged in the order of ids, so that each is read by its key only as far as
-- the limit. Failed and cancelled ones are separate parts, because the index
-- task_engine_failed_or_cancelled has an order of ids only within one status. Only the
-- last attempt of a task counts: so no task comes twice.
SELECT min(id), count(*)
FROM (
    SELECT waiting.task_id AS id
    FROM task_engine_waiting_tasks AS waiting
    WHERE ?14 AND waiting.task_id >= ?1 AND waiting.task_id < ?2
    UNION ALL
    SELECT held.task_id
    FROM task_engine_held_attempts AS held
    WHERE ?15 AND held.task_id >= ?1 AND held.task_id < ?2
    UNION ALL
    SELECT ended.task_id
    FROM task_engine_ended_executions AS ended
    WHERE ?16
        AND ended.ends_task <> 'stopped'
        AND ended.ends_task = 'failed'
        AND ended.task_id >= ?1
        AND ended.task_id < ?2
        AND NOT EXISTS (
            SELECT 1
            FROM task_engine_ended_executions AS later
            WHERE later.task_id = ended.task_id AND later.attempt > ended.attempt
        )
        AND NOT EXISTS (
            SELECT 1 FROM task_engine_waiting_tasks AS waiting WHERE waiting.task_id = ended.task_id
        )
        AND ended.task_id NOT IN (SELECT task_id FROM task_engine_held_attempts)
    UNION ALL
    SELECT ended.task_id
    FROM task_engine_ended_executions AS ended
    WHERE ?17
        AND ended.ends_task <> 'stopped'
        AND ended.ends_task = 'cancelled'
        AND ended.task_id >= ?1
        AND ended.task_id < ?2
        AND NOT EXISTS (
            SELECT 1
            FROM task_engine_ended_executions AS later
            WHERE later.task_id = ended.task_id AND later.attempt > ended.attempt
        )
        AND NOT EXISTS (
            SELECT 1 FROM task_engine_waiting_tasks AS waiting WHERE waiting.task_id = ended.task_id
        )
        AND ended.task_id NOT IN (SELECT task_id FROM task_engine_held_attempts)
    ORDER BY id DESC LIMIT ?3
);

-- name: scan_all
-- A step of a search, newest first: ids of its source, filtered by columns. ?1 and ?2:
-- the range of ids, ?3 the limit, ?4 classes and ?5 queues as JSON, ?6 and ?7 the time of
-- creation, ?10 and ?11 the time when an attempt ended; each of these may be null. ?12:
-- only with an error.
SELECT created.id
FROM (
    SELECT id FROM task_engine_created_tasks WHERE id >= ?1 AND id < ?2
) AS base
CROSS JOIN task_engine_created_tasks AS created ON created.id = base.id
WHERE (?4 IS NULL OR created.task_class IN (SELECT value FROM json_each(?4)))
    AND (?5 IS NULL OR created.queue IN (SELECT value FROM json_each(?5)))
    AND (?6 IS NULL OR created.created_at >= ?6)
    AND (?7 IS NULL OR created.created_at <= ?7)
    AND (
        (?10 IS NULL AND ?11 IS NULL)
        OR EXISTS (
            SELECT 1
            FROM task_engine_ended_executions AS ended
            WHERE ended.task_id = created.id
                AND (?10 IS NULL OR ended.stopped_at >= ?10)
                AND (?11 IS NULL OR ended.stopped_at <= ?11)
        )
    )
    AND (
        NOT ?12
        OR EXISTS (
            SELECT 1
            FROM task_engine_ended_executions AS ended
            WHERE ended.task_id = created.id AND ended.error IS NOT NULL
        )
    )
ORDER BY base.id DESC
LIMIT ?3;

-- name: scan_flow
-- ?8 and ?9 as in scan_bound_flow.
SELECT created.id
FROM (
    SELECT member.id
    FROM task_engine_created_tasks AS member
    WHERE member.context <> '{}'
        AND member.context ->> '$.correlation_id' IS NOT NULL
        AND member.context ->> '$.correlation_id' = ?8
        AND member.id >= ?1
        AND member.id < ?2
    UNION ALL
    SELECT own.id
    FROM task_engine_created_tasks AS own
    WHERE own.id = ?9 AND own.id >= ?1 AND own.id < ?2 AND own.context ->> '$.correlation_id' IS NULL
) AS base
CROSS JOIN task_engine_created_tasks AS created ON created.id = base.id
WHERE (?4 IS NULL OR created.task_class IN (SELECT value FROM json_each(?4)))
    AND (?5 IS NULL OR created.queue IN (SELECT value FROM json_each(?5)))
    AND (?6 IS NULL OR created.created_at >= ?6)
    AND (?7 IS NULL OR created.created_at <= ?7)
    AND (
        (?10 IS NULL AND ?11 IS NULL)
        OR EXISTS (
            SELECT 1
            FROM task_engine_ended_executions AS ended
            WHERE ended.task_id = created.id
                AND (?10 IS NULL OR ended.stopped_at >= ?10)
                AND (?11 IS NULL OR ended.stopped_at <= ?11)
        )
    )
    AND (
        NOT ?12
        OR EXISTS (
            SELECT 1
            FROM task_engine_ended_executions AS ended
            WHERE ended.task_id = created.id AND ended.error IS NOT NULL
        )
    )
ORDER BY base.id DESC
LIMIT ?3;

-- name: scan_ids
-- ?13 as in scan_bound_ids.
SELECT created.id
FROM (
    SELECT id FROM task_engine_created_tasks WHERE id IN (SELECT value FROM json_each(?13)) AND id >= ?1 AND id < ?2
) AS base
CROSS JOIN task_engine_created_tasks AS created ON created.id = base.id
WHERE (?4 IS NULL OR created.task_class IN (SELECT value FROM json_each(?4)))
    AND (?5 IS NULL OR created.queue IN (SELECT value FROM json_each(?5)))
    AND (?6 IS NULL OR created.created_at >= ?6)
    AND (?7 IS NULL OR created.created_at <= ?7)
    AND (
        (?10 IS NULL AND ?11 IS NULL)
        OR EXISTS (
            SELECT 1
            FROM task_engine_ended_executions AS ended
            WHERE ended.task_id = created.id
                AND (?10 IS NULL OR ended.stopped_at >= ?10)
                AND (?11 IS NULL OR ended.stopped_at <= ?11)
        )
    )
    AND (
        NOT ?12
        OR EXISTS (
            SELECT 1
            FROM task_engine_ended_executions AS ended
            WHERE ended.task_id = created.id AND ended.error IS NOT NULL
        )
    )
ORDER BY base.id DESC
LIMIT ?3;

-- name: scan_status
-- ?14 to ?17 as in scan_bound_status.
SELECT created.id
FROM (
    SELECT task_id AS id FROM task_engine_waiting_tasks WHERE ?14 AND task_id >= ?1 AND task_id < ?2
    UNION ALL
    SELECT task_id AS id FROM task_engine_held_attempts WHERE ?15 AND task_id >= ?1 AND task_id < ?2
    UNION ALL
    SELECT ended.task_id AS id
    FROM task_engine_ended_executions AS ended
    WHERE ?16
        AND ended.ends_task <> 'stopped'
        AND ended.ends_task = 'failed'
        AND ended.task_id >= ?1
        AND ended.task_id < ?2
        AND NOT EXISTS (
            SELECT 1
            FROM task_engine_ended_executions AS later
            WHERE later.task_id = ended.task_id AND later.attempt > ended.attempt
        )
        AND NOT EXISTS (
            SELECT 1 FROM task_engine_waiting_tasks AS waiting WHERE waiting.task_id = ended.task_id
        )
        AND ended.task_id NOT IN (SELECT task_id FROM task_engine_held_attempts)
    UNION ALL
    SELECT ended.task_id AS id
    FROM task_engine_ended_executions AS ended
    WHERE ?17
        AND ended.ends_task <> 'stopped'
        AND ended.ends_task = 'cancelled'
        AND ended.task_id >= ?1
        AND ended.task_id < ?2
        AND NOT EXISTS (
            SELECT 1
            FROM task_engine_ended_executions AS later
            WHERE later.task_id = ended.task_id AND later.attempt > ended.attempt
        )
        AND NOT EXISTS (
            SELECT 1 FROM task_engine_waiting_tasks AS waiting WHERE waiting.task_id = ended.task_id
        )
        AND ended.task_id NOT IN (SELECT task_id FROM task_engine_held_attempts)
) AS base
CROSS JOIN task_engine_created_tasks AS created ON created.id = base.id
WHERE (?4 IS NULL OR created.task_class IN (SELECT value FROM json_each(?4)))
    AND (?5 IS NULL OR created.queue IN (SELECT value FROM json_each(?5)))
    AND (?6 IS NULL OR created.created_at >= ?6)
    AND (?7 IS NULL OR created.created_at <= ?7)
    AND (
        (?10 IS NULL AND ?11 IS NULL)
        OR EXISTS (
            SELECT 1
            FROM task_engine_ended_executions AS ended
            WHERE ended.task_id = created.id
                AND (?10 IS NULL OR ended.stopped_at >= ?10)
                AND (?11 IS NULL OR ended.stopped_at <= ?11)
        )
    )
    AND (
        NOT ?12
        OR EXISTS (
            SELECT 1
            FROM task_engine_ended_executions AS ended
            WHERE ended.task_id = created.id AND ended.error IS NOT NULL
        )
    )
ORDER BY base.id DESC
LIMIT ?3;
