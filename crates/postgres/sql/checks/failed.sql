-- Of the last $1 tasks that failed, those of the last hour. By the index
-- ended_executions_to_look_at.
SELECT count(*) AS seen, count(*) FILTER (WHERE stopped_at >= now() - interval '1 hour') AS failed
FROM (
  SELECT e.stopped_at FROM task_engine.ended_executions e
  WHERE e.ends_task IN ('failed', 'cancelled') AND e.ends_task = 'failed'
  ORDER BY e.task_id DESC LIMIT $1
) AS last
