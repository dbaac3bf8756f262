-- name: database_key
SELECT key FROM task_engine.database_key;

-- name: login_end
-- Few: each is forgotten when it would have expired anyway.
WITH old AS (
  DELETE FROM task_engine.ended_logins
  WHERE id = ANY (ARRAY(
    SELECT id FROM task_engine.ended_logins WHERE expires_at < now() LIMIT 100
    FOR UPDATE SKIP LOCKED))
)
INSERT INTO task_engine.ended_logins (id, expires_at)
VALUES ($1, now() + $2::bigint * interval '1 microsecond')
ON CONFLICT (id) DO NOTHING;

-- name: login_is_ended
-- By its key.
SELECT EXISTS (SELECT FROM task_engine.ended_logins WHERE id = $1) AS is_ended;
