-- name: reclaim_claims
-- Of two sessions that reclaim the same claim, the second waits here and gets none. The
-- lock does not block a session that checks the claim of an attempt that it is about to
-- complete. $2 null: all claims of the instance, if its session has ended.
SELECT k.id, k.task_ids, k.attempts, k.retry_numbers,
  (extract(epoch FROM clock_timestamp() - k.claimed_at) * 1000000)::bigint AS held_us,
  i.name, i.host, i.pid, task_engine.readable(i.classes) AS classes,
  (extract(epoch FROM clock_timestamp() - i.heartbeat_at) * 1000000)::bigint AS silent_us
FROM task_engine.claims k
JOIN task_engine.instances i ON i.id = k.instance_id
WHERE k.instance_id = $1
  AND CASE WHEN $2::bigint[] IS NULL
      THEN i.stopped_at IS NOT NULL OR i.lost_at IS NOT NULL
      ELSE k.id = ANY ($2) END
ORDER BY k.id
FOR NO KEY UPDATE OF k;

-- name: reclaim_closed
-- Removes reclaimed claims. By the primary key.
DELETE FROM task_engine.claims WHERE id = ANY ($1::bigint[]);

-- name: reclaim_attempts
-- Of the attempts in reclaimed claims, those that have not ended. A new statement, so
-- that it sees what was recorded until the claims were locked.
SELECT a.task_id, a.attempt, c.task_class, task_engine.readable(c.context) AS context,
  EXISTS (SELECT FROM task_engine.cancel_requests r
          WHERE r.task_id = a.task_id AND r.attempt = a.attempt) AS cancel_requested,
  EXISTS (SELECT FROM task_engine.steps s
          WHERE s.task_id = a.task_id AND s.attempt = a.attempt) AS recorded_steps
FROM unnest($1::bigint[], $2::integer[]) AS a(task_id, attempt)
JOIN task_engine.created_tasks c ON c.id = a.task_id
WHERE NOT EXISTS (
  SELECT FROM task_engine.ended_executions e
  WHERE e.task_id = a.task_id AND e.attempt = a.attempt);
