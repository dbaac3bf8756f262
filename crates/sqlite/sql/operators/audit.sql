-- name: audit
INSERT INTO task_engine_audit (at, actor, action, target, reason, detail, outcome, of_id)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8);

-- name: prune_audit
-- The first of the primary key are the oldest.
DELETE FROM task_engine_audit
WHERE id IN (SELECT id FROM task_engine_audit WHERE id > 0 ORDER BY id LIMIT ?2)
  AND at < ?1;

-- name: audit_page
-- Down the primary key, from below ?1. Filters are applied row by row: there are few
-- entries.
SELECT id, at, actor, action, target, reason, detail, outcome, of_id
FROM task_engine_audit
WHERE id < ?1
  AND (?3 IS NULL OR instr(lower(actor), lower(?3)) > 0)
  AND (?4 IS NULL OR action = ?4 OR substr(action, 1, length(?4) + 1) = ?4 || '.')
  AND (?5 IS NULL OR at >= ?5)
  AND (?6 IS NULL OR at < ?6)
  AND (?7 IS NULL OR target = 'task ' || ?7
       OR (target LIKE 'tasks %'
           AND instr(', ' || substr(target, 7) || ',', ', ' || ?7 || ',') > 0))
ORDER BY id DESC
LIMIT ?2;
