-- name: pause_queue
-- From its commit on, no claim that begins takes from this queue. A second pause
-- is the first one with another reason.
INSERT INTO task_engine.paused_queues AS p (queue, reason, paused_at) VALUES ($1, $2, now())
ON CONFLICT (queue) DO UPDATE SET reason = coalesce(excluded.reason, p.reason)
RETURNING paused_at = now() AS is_new;

-- name: resume_queue
-- Ends a pause, and wakes everybody: this is rare, so that it need not look for
-- idle claimers. One that scanned before this commits is notified afterwards.
WITH resumed AS (DELETE FROM task_engine.paused_queues WHERE queue = $1 RETURNING queue)
SELECT pg_notify('task-engine', '') FROM resumed;
