-- One lane has something due, as in most busy systems: rows are locked where
-- they are read, and those that others have locked are passed over, however
-- many. The position ($6, $7) keeps dead rows that vacuum cannot remove yet from
-- being read again and again. Index: waiting_tasks_by_lane.
picked AS MATERIALIZED (
  SELECT w.ctid AS place FROM task_engine.waiting_tasks w
  WHERE w.queue = $4::text AND w.task_class = $5::text AND w.priority = $8::integer
    AND w.due_at <= now() AND (w.due_at, w.task_id) >= ($6::timestamptz, $7::bigint)
    AND EXISTS (SELECT FROM alive)
    AND NOT EXISTS (SELECT FROM task_engine.paused_queues p WHERE p.queue = $4::text)
  ORDER BY w.due_at, w.task_id LIMIT $3::bigint
  FOR UPDATE SKIP LOCKED
)
