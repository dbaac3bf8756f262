-- Ends a pause, and wakes everybody: this is rare, so that it need not look for
-- sleepers. Whoever looked before this commits hears of it afterwards.
WITH resumed AS (DELETE FROM task_engine.paused_queues WHERE queue = $1 RETURNING queue)
SELECT pg_notify('task-engine', '') FROM resumed
