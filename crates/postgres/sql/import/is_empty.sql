-- Whether ids can be kept.
SELECT NOT EXISTS (SELECT FROM task_engine.created_tasks)
  AND NOT EXISTS (SELECT FROM task_engine.schedules) AS is_empty
