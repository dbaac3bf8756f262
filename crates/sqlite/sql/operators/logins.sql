-- name: database_key
SELECT key FROM task_engine_database_key WHERE is_only = 1;

-- name: login_delete_expired
-- Few: each is forgotten when it would have expired anyway.
DELETE FROM task_engine_ended_logins WHERE expires_at < ?1;

-- name: login_end
INSERT INTO task_engine_ended_logins (id, expires_at) VALUES (?1, ?2)
ON CONFLICT (id) DO NOTHING;

-- name: login_is_ended
-- By its key.
SELECT EXISTS (SELECT 1 FROM task_engine_ended_logins WHERE id = ?1);
