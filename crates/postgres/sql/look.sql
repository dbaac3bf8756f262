-- Where does each lane of these queues and classes begin, from a priority ($3)
-- up? A loose scan of waiting_tasks_by_lane: one probe a lane, however many tasks
-- wait in it. A claim would take nothing from a paused queue, so it has no lanes.
WITH RECURSIVE lane AS (
  SELECT q.queue, c.task_class, head.priority, head.due_at, head.task_id
  FROM unnest($1::text[]) AS q(queue)
  CROSS JOIN unnest($2::text[]) AS c(task_class)
  CROSS JOIN LATERAL (
    SELECT w.priority, w.due_at, w.task_id FROM task_engine.waiting_tasks w
    WHERE w.queue = q.queue AND w.task_class = c.task_class AND w.priority >= $3::integer
    ORDER BY w.priority, w.due_at, w.task_id LIMIT 1
  ) AS head
  WHERE q.queue <> ALL (ARRAY(SELECT p.queue FROM task_engine.paused_queues p))
  UNION ALL
  SELECT lane.queue, lane.task_class, head.priority, head.due_at, head.task_id
  FROM lane
  CROSS JOIN LATERAL (
    SELECT w.priority, w.due_at, w.task_id FROM task_engine.waiting_tasks w
    WHERE w.queue = lane.queue AND w.task_class = lane.task_class AND w.priority > lane.priority
    ORDER BY w.priority, w.due_at, w.task_id LIMIT 1
  ) AS head
)
SELECT queue, task_class, priority, due_at, task_id,
  CASE WHEN due_at <= clock_timestamp() THEN 0
    ELSE (extract(epoch FROM least(due_at, '9999-01-01Z') - clock_timestamp()) * 1000000)::bigint
  END AS due_in_us
FROM lane
