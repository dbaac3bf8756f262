-- Tells other processes that schedules have changed.
UPDATE task_engine_schedule_changes SET number = number + 1 WHERE id = 1
