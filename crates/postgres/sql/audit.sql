INSERT INTO task_engine.audit (at, actor, action, target, reason, detail, outcome, of_id)
VALUES (clock_timestamp(), $1, $2, $3, $4, $5, $6, $7)
RETURNING id
