-- Whether ids can be kept.
SELECT NOT EXISTS (SELECT 1 FROM task_engine_created_tasks)
    AND NOT EXISTS (SELECT 1 FROM task_engine_schedules)
