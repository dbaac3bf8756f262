-- Removes up to ?2 lives that ended before ?1. Not those that hold something, or
-- that history names; not the last that declared these secrets (see
-- instances.sql); and the last of a name only after all others of it.
--
-- There is no index from a life to its executions. But a life executes only what
-- was created before it ended, and the oldest tasks come first by the key: so
-- what they say is enough for the lives that ended before the youngest of them
-- was created. A day between, because ids and times are in order only roughly.
WITH oldest AS MATERIALIZED (
    SELECT id, created_at FROM task_engine_created_tasks ORDER BY id LIMIT 10000
),
life AS MATERIALIZED (
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
    FROM life
    WHERE ended_at < ?1
        AND (is_first OR NOT is_last)
        AND NOT (is_last AND id IN (
            SELECT max(id)
            FROM life
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
)
