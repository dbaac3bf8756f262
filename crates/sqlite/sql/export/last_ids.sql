-- The highest ids that were ever given.
SELECT
    coalesce((SELECT seq FROM sqlite_sequence WHERE name = 'task_engine_created_tasks'), 0),
    coalesce((SELECT seq FROM sqlite_sequence WHERE name = 'task_engine_instances'), 0),
    coalesce((SELECT seq FROM sqlite_sequence WHERE name = 'task_engine_schedules'), 0)
