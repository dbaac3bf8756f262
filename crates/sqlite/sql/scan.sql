-- A step of a search, newest first: ids from the base, narrowed by columns. ?1
-- and ?2: the range of ids, ?3 the limit, ?4 classes and ?5 queues as JSON, ?6 and
-- ?7 the time of creation, ?10 and ?11 the time when an attempt ended; each of these
-- may be null. ?12: only with an error.
SELECT created.id
FROM (/* base */) AS base
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
LIMIT ?3
