-- Down the primary key, from before $1 on. A filter is compared row by row: what
-- operators did is not much.
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
ORDER BY id DESC LIMIT $2::bigint
