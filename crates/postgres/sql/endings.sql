-- Attempts that ended within $4 microseconds, of the tasks from $1 to $2 (side by
-- side), up to $3 of each pair. Ranges of the primary key, read from their ends;
-- the rest by keys. A snooze is no error.
SELECT DISTINCT ON (e.stopped_at, e.task_id, e.attempt)
  e.task_id, e.attempt, c.task_class, c.queue, e.instance_id, i.name AS instance,
  e.started_at, e.stopped_at, e.ends_task::text, e.retry_at,
  CASE WHEN e.ends_task IS NOT NULL OR shown.error->>'exception' IS DISTINCT FROM 'Snoozed'
    THEN left(coalesce((shown.error->>'exception') || ': ' || (shown.error->>'message'), shown.error::text), 500)
  END AS error
FROM unnest($1::bigint[], $2::bigint[]) AS place(low, high)
CROSS JOIN LATERAL (
  SELECT * FROM task_engine.ended_executions near
  WHERE near.task_id BETWEEN place.low AND place.high
  ORDER BY near.task_id DESC, near.attempt DESC LIMIT $3::bigint
) AS e
CROSS JOIN LATERAL (SELECT task_engine.readable(e.error) AS error) AS shown
JOIN task_engine.created_tasks c ON c.id = e.task_id
LEFT JOIN task_engine.instances i ON i.id = e.instance_id
WHERE e.stopped_at >= now() - $4::bigint * interval '1 microsecond'
ORDER BY e.stopped_at, e.task_id, e.attempt
