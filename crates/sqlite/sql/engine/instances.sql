-- name: instance_insert
-- A session begins. The unique index task_engine_instances_live_by_name refuses a name
-- that another session has which has not ended; then nothing is inserted.
INSERT INTO task_engine_instances (
    name, host, pid, process, version, workers, lease_ms, queues, classes,
    started_at, heartbeat_at, pools
)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?10, ?11)
ON CONFLICT DO NOTHING;

-- name: instance_heartbeat
-- Renews a lease, if the session has not ended. By its key.
UPDATE task_engine_instances
SET heartbeat_at = ?2
WHERE id = ?1 AND stopped_at IS NULL AND lost_at IS NULL;

-- name: heartbeat_claims
-- The claims of one engine. Reads all claims, which are few.
SELECT id FROM task_engine_claims WHERE instance_id = ?1 ORDER BY id;

-- name: heartbeat_cancel
-- Attempts of this engine with a cancel request. The usual answer
-- is empty, because there are no requests; so they come first.
SELECT request.task_id, request.attempt
FROM task_engine_cancel_requests AS request
CROSS JOIN task_engine_held_attempts AS held
    ON held.task_id = request.task_id AND held.attempt = request.attempt
WHERE held.instance_id = ?1
ORDER BY request.task_id, request.attempt;

-- name: heartbeat_expired
-- Other sessions whose lease has expired. Reads the partial index
-- task_engine_instances_live_by_name.
SELECT id
FROM task_engine_instances
WHERE stopped_at IS NULL
    AND lost_at IS NULL
    AND id <> ?1
    AND ?2 - heartbeat_at > lease_ms * 1000
ORDER BY id;

-- name: heartbeat_orphaned
-- Ended sessions, with claims left. Driven by the claims, which are few.
SELECT id
FROM task_engine_instances
WHERE id IN (SELECT instance_id FROM task_engine_claims)
    AND (stopped_at IS NOT NULL OR lost_at IS NOT NULL)
ORDER BY id;

-- name: instance_stop
-- Ends a session in good order; an ended one stays as it is. By its key. Only the schemas
-- of live engines count. The row may stay for years, because of its secrets.
UPDATE task_engine_instances
SET
    stopped_at = ?2,
    classes = CASE
        WHEN classes LIKE '%"schema":%' AND json_valid(classes) THEN (
            SELECT json_group_object(key, json_remove(value, '$.schema'))
            FROM json_each(classes)
        )
        ELSE classes
    END
WHERE id = ?1 AND stopped_at IS NULL AND lost_at IS NULL;

-- name: instance_lose
-- Ends a session whose lease has expired, or whose process is known to have ended (?3).
-- A heartbeat that came first wins. By its key.
UPDATE task_engine_instances
SET
    lost_at = ?2,
    classes = CASE
        WHEN classes LIKE '%"schema":%' AND json_valid(classes) THEN (
            SELECT json_group_object(key, json_remove(value, '$.schema'))
            FROM json_each(classes)
        )
        ELSE classes
    END
WHERE id = ?1
    AND stopped_at IS NULL
    AND lost_at IS NULL
    AND (?3 OR ?2 - heartbeat_at > lease_ms * 1000);

-- name: instances
-- Sessions of one name or of all, newest first: those that have not ended, those that
-- still hold something, and the last of each name. Without a name also not those
-- that ended before ?2, but for the last that declared these secrets: they hold
-- for the tasks that are left.
WITH holding AS MATERIALIZED (
    SELECT instance_id, count(*) AS held FROM task_engine_held_attempts GROUP BY instance_id
),
session AS MATERIALIZED (
    SELECT
        *,
        coalesce(stopped_at, lost_at) AS ended_at,
        id = max(id) OVER (PARTITION BY name) AS is_last
    FROM task_engine_instances
    WHERE ?1 IS NULL OR name = ?1
)
SELECT
    session.id, session.name, session.host, session.pid, session.process, session.version, session.workers,
    session.lease_ms, session.queues, session.classes,
    session.started_at, session.heartbeat_at, session.stopped_at, session.lost_at,
    coalesce(holding.held, 0), session.pools
FROM session
LEFT JOIN holding ON holding.instance_id = session.id
WHERE session.ended_at IS NULL
    OR holding.held > 0
    OR (session.is_last AND (
        ?1 IS NOT NULL
        OR session.ended_at >= ?2
        OR session.id IN (
            SELECT max(id)
            FROM session
            WHERE is_last AND classes LIKE '%"secret":[%'
            GROUP BY classes
        )
    ))
ORDER BY session.id DESC;

-- name: prune_instances
-- Removes up to ?2 sessions that ended before ?1. Not those that hold something, or
-- that history names; not the last that declared these secrets (see
-- instances.sql); and the last of a name only after all others of it.
--
-- There is no index from a session to its executions. But a session executes only what
-- was created before it ended, and the oldest tasks come first by the key: so
-- they are enough for the sessions that ended before the youngest of them
-- was created. A day between, because ids and times are in order only roughly.
WITH oldest AS MATERIALIZED (
    SELECT id, created_at FROM task_engine_created_tasks ORDER BY id LIMIT 10000
),
session AS MATERIALIZED (
    SELECT
        id,
        classes,
        coalesce(stopped_at, lost_at) AS ended_at,
        id = min(id) OVER (PARTITION BY name) AS is_first,
        id = max(id) OVER (PARTITION BY name) AS is_last
    FROM task_engine_instances
)
DELETE FROM task_engine_instances
WHERE id IN (
    SELECT id
    FROM session
    WHERE ended_at < ?1
        AND (is_first OR NOT is_last)
        AND NOT (is_last AND id IN (
            SELECT max(id)
            FROM session
            WHERE is_last AND classes LIKE '%"secret":[%'
            GROUP BY classes
        ))
        AND id NOT IN (SELECT instance_id FROM task_engine_claims)
        AND (
            (SELECT count(*) FROM oldest) < 10000
            OR ended_at < (SELECT max(created_at) - 86400000000 FROM oldest)
        )
        AND id NOT IN (
            SELECT ended.instance_id
            FROM oldest
            CROSS JOIN task_engine_ended_executions AS ended ON ended.task_id = oldest.id
            WHERE ended.instance_id IS NOT NULL
        )
    ORDER BY id
    LIMIT ?2
);

-- name: held_by
-- The attempts that one session holds.
SELECT held.task_id, held.attempt, created.task_class, held.claimed_at
FROM task_engine_held_attempts AS held
JOIN task_engine_created_tasks AS created ON created.id = held.task_id
WHERE held.instance_id = ?1
ORDER BY held.task_id, held.attempt;

-- name: next_waiting_class
-- The next queue and class that have waiting tasks: two searches in
-- task_engine_waiting_lanes, whatever the number of tasks. Not written as
-- (queue, task_class) > (?1, ?2), for which SQLite reads all rows of the pair.
SELECT queue, task_class
FROM (
    SELECT queue, task_class
    FROM task_engine_waiting_tasks
    WHERE queue = ?1 AND task_class > ?2
    ORDER BY task_class
    LIMIT 1
)
UNION ALL
SELECT queue, task_class
FROM (
    SELECT queue, task_class
    FROM task_engine_waiting_tasks
    WHERE queue > ?1
    ORDER BY queue, task_class
    LIMIT 1
)
LIMIT 1;
