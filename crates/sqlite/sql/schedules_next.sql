-- When the next schedule is due after a time. One look at the index.
SELECT min(next_at) FROM task_engine_schedules WHERE next_at > ?1
