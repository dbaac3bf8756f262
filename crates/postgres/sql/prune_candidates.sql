-- Tasks that may be removed, the oldest first, by the primary key.
SELECT e.task_id FROM task_engine.ended_executions e
WHERE e.ends_task = $1::text::task_engine.task_status
  AND e.stopped_at <= clock_timestamp() - $2::bigint * interval '1 microsecond'
  AND NOT EXISTS (
    SELECT FROM task_engine.ended_executions later
    WHERE later.task_id = e.task_id AND later.attempt > e.attempt)
  AND NOT EXISTS (SELECT FROM task_engine.waiting_tasks w WHERE w.task_id = e.task_id)
  AND e.task_id NOT IN (SELECT unnest(k.task_ids) FROM task_engine.claims k)
ORDER BY e.task_id, e.attempt LIMIT $3
