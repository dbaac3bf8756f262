-- Those of a flow (?8), by the index task_engine_created_by_correlation, and the
-- task whose own id (?9) is its name, if that has no other.
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
