-- Lives of one name or of all, newest first: those that are not over, those that
-- still hold something, and the last of each name. Without a name also not those
-- that ended before ?2, but for the last that declared these secrets: they hold
-- for the tasks that are left.
WITH holding AS MATERIALIZED (
    SELECT instance_id, count(*) AS held FROM task_engine_held_attempts GROUP BY instance_id
),
life AS MATERIALIZED (
    SELECT
        *,
        coalesce(stopped_at, lost_at) AS ended_at,
        id = max(id) OVER (PARTITION BY name) AS is_last
    FROM task_engine_instances
    WHERE ?1 IS NULL OR name = ?1
)
SELECT
    life.id, life.name, life.host, life.pid, life.process, life.version, life.workers,
    life.lease_ms, life.queues, life.classes,
    life.started_at, life.heartbeat_at, life.stopped_at, life.lost_at,
    coalesce(holding.held, 0), life.pools
FROM life
LEFT JOIN holding ON holding.instance_id = life.id
WHERE life.ended_at IS NULL
    OR holding.held > 0
    OR (life.is_last AND (
        ?1 IS NOT NULL
        OR life.ended_at >= ?2
        OR life.id IN (
            SELECT max(id)
            FROM life
            WHERE is_last AND classes LIKE '%"secret":[%'
            GROUP BY classes
        )
    ))
ORDER BY life.id DESC
