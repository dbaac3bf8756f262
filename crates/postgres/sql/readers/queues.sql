-- name: queues_waiting
-- The first $2 lanes that have waiting tasks, each counted up to $1. One probe
-- finds a lane, and ranges of waiting_tasks_by_lane are counted, so that a
-- large lane costs no more than the limit. Tasks in the lanes of keys and blocked tasks are in a
-- queue with a prefix; a blocked task is not due, whatever its time is.
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
SELECT ltrim(lane.queue, chr(30) || chr(31)) AS queue, due.seen AS due, later.seen AS later
FROM lane
CROSS JOIN LATERAL (
  SELECT count(*) AS seen FROM (
    SELECT FROM task_engine.waiting_tasks w
    WHERE w.queue = lane.queue AND w.task_class = lane.task_class AND w.priority = lane.priority
      AND w.due_at <= now() AND NOT starts_with(lane.queue, chr(30)) LIMIT $1::bigint) AS some_of_it
) AS due
CROSS JOIN LATERAL (
  SELECT count(*) AS seen FROM (
    SELECT FROM task_engine.waiting_tasks w
    WHERE w.queue = lane.queue AND w.task_class = lane.task_class AND w.priority = lane.priority
      AND (w.due_at > now() OR starts_with(lane.queue, chr(30))) LIMIT $1::bigint) AS some_of_it
) AS later;

-- name: queues_running
-- As many rows as there are busy workers, each by its key.
SELECT c.queue, count(*) AS running
FROM task_engine.held_attempts h JOIN task_engine.created_tasks c ON c.id = h.task_id
GROUP BY c.queue;

-- name: queues_served
SELECT DISTINCT unnest(queues) AS queue FROM task_engine.instances
WHERE stopped_at IS NULL AND lost_at IS NULL;

-- name: paused_queues
SELECT queue, reason, paused_at FROM task_engine.paused_queues ORDER BY queue;
