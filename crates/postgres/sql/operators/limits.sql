-- name: set_limit
SELECT task_engine.put_limit($1, $2, $3, $4, true) AS outcome;

-- name: clear_limit
SELECT task_engine.clear_limit($1) AS outcome;

-- name: open_limit_key
-- Opens a closed key, and wakes engines.
WITH opened AS (
  DELETE FROM task_engine.closed_keys c
  USING task_engine.limits l
  WHERE l.name = $1 AND c.limit_id = l.id AND c.key = $2 AND c.closed_until > clock_timestamp()
  RETURNING 1
)
SELECT count(*) > 0 AS opened, count(task_engine.wake('')) FROM opened;
