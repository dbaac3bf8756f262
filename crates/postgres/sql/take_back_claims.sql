-- Deleting drives: of two who take the same claim back, the second gets none.
-- $2 null: all claims of the instance, if its life is over.
DELETE FROM task_engine.claims k
USING task_engine.instances i
WHERE k.instance_id = $1 AND i.id = k.instance_id
  AND CASE WHEN $2::bigint[] IS NULL
      THEN i.stopped_at IS NOT NULL OR i.lost_at IS NOT NULL
      ELSE k.id = ANY ($2) END
RETURNING k.id, k.task_ids, k.attempts, k.retry_numbers,
  (extract(epoch FROM clock_timestamp() - k.claimed_at) * 1000000)::bigint AS held_us,
  i.name, i.host, i.pid, i.classes,
  (extract(epoch FROM clock_timestamp() - i.heartbeat_at) * 1000000)::bigint AS silent_us
