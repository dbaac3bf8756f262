INSERT INTO task_engine.tokens (name, role, hash, created_at, expires_at)
VALUES ($1, $2, $3, now(), now() + $4::bigint * interval '1 microsecond')
ON CONFLICT (name) WHERE revoked_at IS NULL DO NOTHING
RETURNING id
