-- name: audit
INSERT INTO task_engine.audit (at, actor, action, target, reason, detail, outcome, of_id)
VALUES (clock_timestamp(), $1, $2, $3, $4, $5, $6, $7)
RETURNING id;

-- name: audit_page
-- Down the primary key, from below $1. Filters are applied row by row: there are few
-- entries.
SELECT id, at, actor, action, target, reason, task_engine.readable(detail) AS detail, outcome, of_id
FROM task_engine.audit
WHERE id < $1::bigint
  AND ($3::text IS NULL OR position(lower($3) IN lower(actor)) > 0)
  AND ($4::text IS NULL OR action = $4 OR substr(action, 1, length($4) + 1) = $4 || '.')
  AND ($5::timestamptz IS NULL OR at >= $5)
  AND ($6::timestamptz IS NULL OR at < $6)
  AND ($7::text IS NULL OR target = 'task ' || $7
       OR (target LIKE 'tasks %'
           AND position(', ' || $7 || ',' IN ', ' || substr(target, 7) || ',') > 0))
ORDER BY id DESC LIMIT $2::bigint;

-- name: prune_audit
-- The first entries of the primary key are the oldest. Of two engines at the same time,
-- one skips the locked entries.
DELETE FROM task_engine.audit
WHERE id = ANY (ARRAY(
    SELECT id FROM task_engine.audit ORDER BY id LIMIT $2::bigint FOR UPDATE SKIP LOCKED))
  AND at < clock_timestamp() - $1::bigint * interval '1 microsecond';
