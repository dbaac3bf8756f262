SELECT name FROM task_engine.schedules WHERE name = ANY ($1) LIMIT 1
