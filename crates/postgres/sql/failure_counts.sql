-- How many tasks have failed, and how many were cancelled, up to $1: what ended
-- so and was not sent back. Reads the partial index ended_executions_to_look_at
-- and probes keys; of those that were sent back, what is held now is few, and is
-- taken off afterwards. The status is no column: a type of our own would have
-- to be asked for, by a prepared statement.
SELECT
  (SELECT count(*) FROM (
    SELECT FROM task_engine.ended_executions e
    WHERE e.ends_task IN ('failed', 'cancelled') AND e.ends_task = status
      AND NOT EXISTS (SELECT FROM task_engine.ended_executions later
                      WHERE later.task_id = e.task_id AND later.attempt > e.attempt)
      AND NOT EXISTS (SELECT FROM task_engine.waiting_tasks w WHERE w.task_id = e.task_id)
    LIMIT $1::bigint) AS some_of_it)
  - (SELECT count(*) FROM task_engine.held_attempts h
     CROSS JOIN LATERAL (
       SELECT e.ends_task FROM task_engine.ended_executions e
       WHERE e.task_id = h.task_id ORDER BY e.attempt DESC LIMIT 1
     ) AS last
     WHERE last.ends_task = status) AS seen
FROM unnest('{failed, cancelled}'::task_engine.task_status[]) AS status
