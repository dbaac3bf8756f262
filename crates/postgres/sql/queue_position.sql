-- How many due tasks of these queues ($2) and classes ($3) are claimed before the
-- waiting task $1, each lane counted up to $4. A lane of a higher priority is
-- counted up to now, one of the same up to the task: ranges of
-- waiting_tasks_by_lane; each step of the recursion is one probe in it.
WITH RECURSIVE me AS (
  SELECT task_id, due_at, priority FROM task_engine.waiting_tasks WHERE task_id = $1
), lane AS (
  SELECT q.queue, k.task_class, (
    SELECT max(w.priority) FROM task_engine.waiting_tasks w
    WHERE w.queue = q.queue AND w.task_class = k.task_class) AS priority
  FROM unnest($2::text[]) AS q(queue) CROSS JOIN unnest($3::text[]) AS k(task_class)
  WHERE NOT EXISTS (SELECT FROM task_engine.paused_queues p WHERE p.queue = q.queue)
  UNION ALL
  SELECT lane.queue, lane.task_class, (
    SELECT max(w.priority) FROM task_engine.waiting_tasks w
    WHERE w.queue = lane.queue AND w.task_class = lane.task_class AND w.priority < lane.priority)
  FROM lane CROSS JOIN me WHERE lane.priority > me.priority
)
SELECT NULL::bigint AS seen FROM me
UNION ALL
SELECT before.seen FROM me
CROSS JOIN LATERAL (
  SELECT lane.queue, lane.task_class, lane.priority,
    CASE WHEN lane.priority > me.priority THEN now() ELSE least(me.due_at, now()) END AS due_at,
    CASE WHEN lane.priority > me.priority THEN 9223372036854775807 ELSE me.task_id END AS task_id
  FROM lane WHERE lane.priority >= me.priority
) AS up_to
CROSS JOIN LATERAL (
  SELECT count(*) AS seen FROM (
    SELECT FROM task_engine.waiting_tasks w
    WHERE w.queue = up_to.queue AND w.task_class = up_to.task_class
      AND w.priority = up_to.priority AND (w.due_at, w.task_id) < (up_to.due_at, up_to.task_id)
    LIMIT $4::bigint) AS some_of_it
) AS before
