-- By schedules_by_next_at; the last task is looked for only where it matters.
SELECT s.name, (extract(epoch FROM now() - s.next_at) * 1000000)::bigint AS late_us,
  s.overlap = 'wait' AND coalesce(task_engine.is_open(s.last_task_id), false) AS waits
FROM task_engine.schedules s WHERE s.next_at <= now() ORDER BY s.next_at LIMIT 100
