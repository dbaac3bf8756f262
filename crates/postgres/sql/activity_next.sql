-- The first $1 tasks of each of the first $2 lanes that are due within $3
-- microseconds, $4 in all. One probe finds a lane, and each is read from its beginning
-- (waiting_tasks_by_lane).
WITH RECURSIVE lane AS (
  (SELECT queue, task_class, priority, 1 AS place FROM task_engine.waiting_tasks
   ORDER BY queue, task_class, priority LIMIT 1)
  UNION ALL
  SELECT head.queue, head.task_class, head.priority, lane.place + 1
  FROM lane CROSS JOIN LATERAL (
    SELECT w.queue, w.task_class, w.priority FROM task_engine.waiting_tasks w
    WHERE (w.queue, w.task_class, w.priority) > (lane.queue, lane.task_class, lane.priority)
    ORDER BY w.queue, w.task_class, w.priority LIMIT 1
  ) AS head
  WHERE lane.place < $2::integer
)
SELECT lane.queue, lane.task_class, lane.priority, first.task_id, first.due_at
FROM lane CROSS JOIN LATERAL (
  SELECT w.task_id, w.due_at FROM task_engine.waiting_tasks w
  WHERE w.queue = lane.queue AND w.task_class = lane.task_class AND w.priority = lane.priority
    AND w.due_at <= now() + $3::bigint * interval '1 microsecond'
  ORDER BY w.due_at, w.task_id LIMIT $1::bigint
) AS first
LIMIT $4::bigint
