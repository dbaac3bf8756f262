-- name: complete_lock
-- Takes the lock of the writer, and changes nothing.
DELETE FROM task_engine_claims WHERE id = -1;

-- name: claim
-- The claim of an attempt that is about to be completed, or to record a step. By its key.
SELECT instance_id, attempts FROM task_engine_claims WHERE id = ?1;

-- name: completed
-- Whether an attempt was completed by its own holder. By its key.
SELECT 1
FROM task_engine_ended_executions
WHERE task_id = ?1 AND attempt = ?2 AND claim_id = ?3 AND error IS NULL;
