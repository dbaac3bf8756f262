-- Down the primary key, from before ?1 on.
SELECT id, at, actor, action, target, reason, detail, outcome, of_id
FROM task_engine_audit
WHERE id < ?1
ORDER BY id DESC
LIMIT ?2
