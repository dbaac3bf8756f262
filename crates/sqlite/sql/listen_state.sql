-- What a change may mean: whether anything waits, and the newest wish to cancel.
-- Two looks at the edge of a table.
SELECT
    EXISTS (SELECT 1 FROM task_engine_waiting_tasks),
    (SELECT coalesce(max(id), 0) FROM task_engine_cancel_requests)
