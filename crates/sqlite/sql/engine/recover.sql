-- name: reclaim_claim
-- Takes one claim from its engine; the job that gets the row ends its attempts.
DELETE FROM task_engine_claims
WHERE id = ?1 AND instance_id = ?2
RETURNING claimed_at, attempts;

-- name: reclaim_claims
-- Takes all claims of a session that has ended. A claim may have committed after the
-- first call, so it is called repeatedly. Reads all claims: there are as many as open
-- batches.
DELETE FROM task_engine_claims
WHERE instance_id = (
    SELECT id
    FROM task_engine_instances
    WHERE id = ?1 AND (stopped_at IS NOT NULL OR lost_at IS NOT NULL)
)
RETURNING claimed_at, attempts;

-- name: reclaimed_task
-- What decides about a reclaimed attempt: fields of its task, its cancel request, and
-- whether it has recorded a step. By keys; steps by a range of theirs.
SELECT
    task_class,
    context,
    EXISTS (
        SELECT 1
        FROM task_engine_cancel_requests AS request
        WHERE request.task_id = ?1 AND request.attempt = ?2
    ),
    EXISTS (
        SELECT 1
        FROM task_engine_steps AS step
        WHERE step.task_id = ?1 AND step.attempt = ?2
    )
FROM task_engine_created_tasks
WHERE id = ?1;

-- name: instance_of_claims
-- The fields of a dead engine that recovery needs. By its key.
SELECT name, host, pid, heartbeat_at, classes
FROM task_engine_instances
WHERE id = ?1;
