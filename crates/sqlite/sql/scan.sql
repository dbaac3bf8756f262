-- A step of a search, newest first: ids from the base, narrowed by columns. ?1
-- and ?2: the range of ids, ?3 the limit, ?4 classes and ?5 queues as JSON, ?6 and
-- ?7 the time of creation; each of the last four may be null.
SELECT created.id
FROM (/* base */) AS base
CROSS JOIN task_engine_created_tasks AS created ON created.id = base.id
WHERE (?4 IS NULL OR created.task_class IN (SELECT value FROM json_each(?4)))
    AND (?5 IS NULL OR created.queue IN (SELECT value FROM json_each(?5)))
    AND (?6 IS NULL OR created.created_at >= ?6)
    AND (?7 IS NULL OR created.created_at <= ?7)
ORDER BY base.id DESC
LIMIT ?3
