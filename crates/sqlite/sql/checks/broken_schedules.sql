-- There are few schedules, and fewer with an error.
SELECT name, error FROM task_engine_schedules WHERE error IS NOT NULL ORDER BY name LIMIT 100
