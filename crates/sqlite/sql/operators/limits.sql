-- name: limit_insert
-- A new limit, under a new id.
INSERT INTO task_engine_limits (name, target, target_name, declared, operator, changed_at)
VALUES (?1, ?2, ?3, ?4, ?5, ?6);

-- name: limit_update
-- The options of a limit change; its id, name and target stay. By its key.
UPDATE task_engine_limits SET declared = ?2, operator = ?3, changed_at = ?4 WHERE id = ?1;

-- name: limit_delete
-- By its key. The rows of its keys are removed by retention.
DELETE FROM task_engine_limits WHERE id = ?1;

-- name: limit_starts_delete
-- A rate counts starts from its last change on. A range of the primary key.
DELETE FROM task_engine_limit_starts WHERE limit_id = ?1;

-- name: open_key
-- Opens a key that is closed at a time (?3). By keys.
DELETE FROM task_engine_closed_keys
WHERE limit_id = (SELECT id FROM task_engine_limits WHERE name = ?1) AND key = ?2 AND until > ?3;

-- name: closed_keys
-- The keys of a limit that are closed at a time (?2). A range of the primary key.
SELECT key, until, reason
FROM task_engine_closed_keys
WHERE limit_id = ?1 AND until > ?2
ORDER BY key;
