DELETE FROM task_engine_schedules WHERE name = ?1 RETURNING id
