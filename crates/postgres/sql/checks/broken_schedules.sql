SELECT name, error FROM task_engine.schedules WHERE error IS NOT NULL ORDER BY name LIMIT 100
