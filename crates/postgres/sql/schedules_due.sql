-- Schedules that are due, and when the next one will be: always at least one
-- row. By the index on next_at, which has no paused or broken ones. Those that
-- wait for a task to end are passed over, so that they never hide others; as
-- many as there are of them are looked at.
WITH moment AS MATERIALIZED (
  SELECT clock_timestamp() AS now
)
SELECT
  m.now,
  (SELECT (extract(epoch FROM min(n.next_at) - m.now) * 1000000)::bigint
   FROM task_engine.schedules n WHERE n.next_at > m.now) AS next_us,
  EXISTS (
    SELECT FROM task_engine.schedules b
    WHERE b.next_at <= m.now AND b.overlap = 'wait' AND task_engine.is_open(b.last_task_id)
  ) AS blocked,
  due.*
FROM moment m LEFT JOIN LATERAL (
  SELECT s.id, s.version, s.name, task_engine.readable(s.definition) AS definition, s.declared,
    s.overlap, s.anchor, s.paused_at, s.pause_reason, s.error, s.next_at, s.last_slot,
    s.last_task_id, s.created_at, s.updated_at,
    s.overlap = 'skip' AND task_engine.is_open(s.last_task_id) AS last_runs
  FROM task_engine.schedules s
  WHERE s.next_at <= m.now
    AND NOT (s.overlap = 'wait' AND task_engine.is_open(s.last_task_id))
  ORDER BY s.next_at LIMIT $1
) AS due ON true
