-- The first $1 queues and classes that have waiting tasks, and for how long the
-- first of each has been due. One probe of waiting_tasks_by_lane finds a lane,
-- one more its first task.
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
  WHERE lane.place < $1::integer
)
SELECT lane.queue, lane.task_class,
  (extract(epoch FROM max(now() - head.due_at) FILTER (WHERE head.due_at <= now())) * 1000000)::bigint
    AS due_for_us
FROM lane CROSS JOIN LATERAL (
  SELECT w.due_at FROM task_engine.waiting_tasks w
  WHERE w.queue = lane.queue AND w.task_class = lane.task_class AND w.priority = lane.priority
  ORDER BY w.due_at LIMIT 1
) AS head
GROUP BY lane.queue, lane.task_class ORDER BY lane.queue, lane.task_class
