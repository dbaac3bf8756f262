-- name: report
-- Writes what attempts have said. The key of a line is the fence: sent again, it
-- changes nothing. Progress only ever goes forward, by its version.
--
-- The tasks are locked against retention, which would leave these rows behind if
-- it removed the task at the same moment; but never waited for: those that
-- are locked are returned and sent again. Those that are gone are not
-- written, and not returned.
WITH there AS MATERIALIZED (
  SELECT id FROM task_engine.created_tasks
  WHERE id = ANY ($1::bigint[]) ORDER BY id FOR KEY SHARE SKIP LOCKED
), clock AS MATERIALIZED (
  SELECT clock_timestamp() AS now
), lines AS (
  INSERT INTO task_engine.execution_logs (task_id, attempt, line, logged_at, level, message)
  SELECT l.task_id, l.attempt, l.line, clock.now - l.ago_us * interval '1 microsecond', l.level, l.message
  FROM unnest($8::bigint[], $9::integer[], $10::integer[], $11::bigint[], $12::text[], $13::text[])
    AS l(task_id, attempt, line, ago_us, level, message)
  JOIN there ON there.id = l.task_id
  CROSS JOIN clock
  ORDER BY l.task_id, l.attempt, l.line
  ON CONFLICT (task_id, attempt, line) DO NOTHING
), progress AS (
  INSERT INTO task_engine.execution_progress AS p
    (task_id, attempt, version, lines, percent, message, reported_at)
  SELECT r.task_id, r.attempt, r.version, r.lines, r.percent, r.message,
    clock.now - r.ago_us * interval '1 microsecond'
  FROM unnest(
    $1::bigint[], $2::integer[], $3::bigint[], $4::integer[], $5::double precision[], $6::text[],
    $7::bigint[]
  ) AS r(task_id, attempt, version, lines, percent, message, ago_us)
  JOIN there ON there.id = r.task_id
  CROSS JOIN clock
  ORDER BY r.task_id, r.attempt
  ON CONFLICT (task_id, attempt) DO UPDATE SET
    version = excluded.version, lines = excluded.lines, percent = excluded.percent,
    message = excluded.message, reported_at = excluded.reported_at
  WHERE p.version < excluded.version
)
SELECT a.task_id, a.attempt FROM unnest($1::bigint[], $2::integer[]) AS a(task_id, attempt)
WHERE NOT EXISTS (SELECT FROM there WHERE there.id = a.task_id)
  AND EXISTS (SELECT FROM task_engine.created_tasks c WHERE c.id = a.task_id);

-- name: logs
-- Lines of a task's log: a range of the primary key.
SELECT l.attempt, l.line, l.logged_at, l.level, l.message
FROM task_engine.execution_logs l
WHERE l.task_id = $1 AND (l.attempt, l.line) > ($2::integer, $3::integer)
  AND (l.attempt, l.line) < ($4::integer, $5::integer)
ORDER BY l.attempt, l.line LIMIT $6;

-- name: logs_newest
-- The newest lines, the last of them first.
SELECT l.attempt, l.line, l.logged_at, l.level, l.message
FROM task_engine.execution_logs l
WHERE l.task_id = $1 AND (l.attempt, l.line) > ($2::integer, $3::integer)
  AND (l.attempt, l.line) < ($4::integer, $5::integer)
ORDER BY l.attempt DESC, l.line DESC LIMIT $6;
