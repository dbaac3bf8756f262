-- Down the primary key, from before $1 on.
SELECT id, at, actor, action, target, reason, task_engine.readable(detail) AS detail, outcome, of_id
FROM task_engine.audit
WHERE id < $1::bigint
ORDER BY id DESC LIMIT $2::bigint
