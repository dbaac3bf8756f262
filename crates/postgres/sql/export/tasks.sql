-- A page of tasks after $1, with where they wait: a walk along the keys.
SELECT c.id, c.task_class, c.queue, c.priority, c.created_at, c.scheduled_at,
  task_engine.readable(c.task_parameters) AS task_parameters,
  task_engine.readable(c.context) AS context,
  coalesce(
    'its parameters cannot be read: ' || task_engine.unreadable(c.task_parameters),
    'its context cannot be read: ' || task_engine.unreadable(c.context)) AS unreadable,
  w.attempt, w.retry_number, w.due_at,
  -- Not EXISTS: some versions of PostgreSQL read all of unique_tasks for that.
  coalesce((SELECT u.task_id FROM task_engine.unique_tasks u
    WHERE u.task_class = c.task_class
      AND u.unique_key = task_engine.readable(c.context)->>'unique_key') = c.id,
    false) AS has_unique_key
FROM task_engine.created_tasks c
LEFT JOIN task_engine.waiting_tasks w ON w.task_id = c.id
WHERE c.id > $1 ORDER BY c.id LIMIT $2
