-- name: pause_queue
-- Every claim that begins after the commit skips this queue. A second pause replaces the
-- reason.
INSERT INTO task_engine.paused_queues AS p (queue, reason, paused_at) VALUES ($1, $2, now())
ON CONFLICT (queue) DO UPDATE SET reason = coalesce(excluded.reason, p.reason)
RETURNING paused_at = now() AS is_new;

-- name: resume_queue
-- Ends a pause and always notifies: this is rare, so it does not look for idle claimers.
-- A claimer that scanned before the commit is notified afterwards.
WITH resumed AS (DELETE FROM task_engine.paused_queues WHERE queue = $1 RETURNING queue)
SELECT pg_notify('task-engine', '') FROM resumed;
