-- Whether a schedule still is what somebody has seen. By its key.
SELECT EXISTS (SELECT 1 FROM task_engine_schedules WHERE id = ?1 AND version = ?2)
