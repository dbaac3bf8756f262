-- name: listen_state
-- The state that wake-ups are derived from: whether a task waits, the newest cancel
-- request, and how often schedules were changed. Reads the ends of the tables.
SELECT
    EXISTS (SELECT 1 FROM task_engine_waiting_tasks),
    (SELECT coalesce(max(id), 0) FROM task_engine_cancel_requests),
    (SELECT coalesce(max(number), 0) FROM task_engine_schedule_changes);

-- name: listen_version
-- Changes whenever another connection has committed. Costs no disk access.
PRAGMA data_version;
