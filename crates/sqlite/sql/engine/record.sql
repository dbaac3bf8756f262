-- name: task_exists
-- Whether retention has left the task. By its key.
SELECT 1 FROM task_engine_created_tasks WHERE id = ?1;

-- name: end_attempt
-- The fence: an attempt ends once, and the first insert decides. By the key.
INSERT INTO task_engine_ended_executions (
    task_id, attempt, retry_number, claim_id, instance_id, worker,
    started_at, stopped_at, result, error, ends_task, retry_at
)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12)
ON CONFLICT (task_id, attempt) DO NOTHING;

-- name: tasks_exist
-- How many tasks with ids in a row retention has left. By their key.
SELECT count(*) FROM task_engine_created_tasks WHERE id BETWEEN ?1 AND ?2;

-- name: requeue
-- A later attempt waits: after a failure, a release, or a retry by an
-- operator. A task waits at most once; should it wait already, it is not lost.
-- Reads created_tasks by its key.
INSERT INTO task_engine_waiting_tasks
    (task_id, queue, task_class, priority, due_at, attempt, retry_number)
SELECT id, queue, task_class, priority, ?2, ?3, ?4
FROM task_engine_created_tasks
WHERE id = ?1
ON CONFLICT (task_id) DO NOTHING;

-- name: claim_delete
-- A claim whose attempts have all ended. By its key.
DELETE FROM task_engine_claims WHERE id = ?1;

-- name: cancel_requested
-- Whether this attempt has a cancel request. By the key.
SELECT EXISTS (
    SELECT 1
    FROM task_engine_cancel_requests
    WHERE task_id = ?1 AND attempt = ?2
);

-- name: cancellations_from_requests
-- Cancel requests of attempts that have ended are moved to cancellations;
-- what the attempt answered is there already, or it did not. Driven by the
-- requests, which are few.
INSERT INTO task_engine_cancellations (task_id, attempt, requested_at)
SELECT request.task_id, request.attempt, request.requested_at
FROM task_engine_cancel_requests AS request
WHERE EXISTS (
    SELECT 1
    FROM task_engine_ended_executions AS ended
    WHERE ended.task_id = request.task_id AND ended.attempt = request.attempt
)
ON CONFLICT (task_id, attempt) DO NOTHING;

-- name: cancel_requests_sweep
-- Cancel requests of attempts that have ended. Driven by the requests, which are few, so
-- that a batch of endings pays for it once.
DELETE FROM task_engine_cancel_requests
WHERE EXISTS (
    SELECT 1
    FROM task_engine_ended_executions AS ended
    WHERE ended.task_id = task_engine_cancel_requests.task_id
        AND ended.attempt = task_engine_cancel_requests.attempt
);

-- name: ended_by
-- Under which claim an attempt ended; null if its engine did not end it. By its key.
SELECT claim_id FROM task_engine_ended_executions WHERE task_id = ?1 AND attempt = ?2;

-- name: late_result
-- Keeps a late result as evidence; the first one is enough. Nothing is kept about a task
-- that retention has removed. By keys alone.
INSERT INTO task_engine_late_results (
    task_id, attempt, arrived_at, claim_id, instance_id, worker,
    started_at, stopped_at, result, error
)
SELECT task_id, attempt, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10
FROM task_engine_ended_executions
WHERE task_id = ?1 AND attempt = ?2
ON CONFLICT (task_id, attempt) DO NOTHING;
