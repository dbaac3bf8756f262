-- Lives of one name or of all, newest first: those that are not over, those that
-- still hold something, and the last of each name.
WITH holding AS MATERIALIZED (
    SELECT instance_id, count(*) AS held FROM task_engine_held_attempts GROUP BY instance_id
)
SELECT
    life.id, life.name, life.host, life.pid, life.process, life.version, life.workers,
    life.lease_ms, life.queues, life.classes,
    life.started_at, life.heartbeat_at, life.stopped_at, life.lost_at,
    coalesce(holding.held, 0), life.pools
FROM task_engine_instances AS life
LEFT JOIN holding ON holding.instance_id = life.id
WHERE (?1 IS NULL OR life.name = ?1)
    AND (
        (life.stopped_at IS NULL AND life.lost_at IS NULL)
        OR holding.held > 0
        OR life.id = (SELECT max(last.id) FROM task_engine_instances AS last WHERE last.name = life.name)
    )
ORDER BY life.id DESC
