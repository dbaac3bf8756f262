-- What one attempt has said, and what became of a wish to cancel it. By keys.
SELECT
    progress.percent, progress.message, progress.reported_at, coalesce(progress.lines, 0),
    coalesce(cancellation.requested_at, request.requested_at),
    cancellation.told_at, cancellation.answer
FROM (SELECT ?1 AS task_id, ?2 AS attempt) AS this
LEFT JOIN task_engine_execution_progress AS progress
    ON progress.task_id = this.task_id AND progress.attempt = this.attempt
LEFT JOIN task_engine_cancellations AS cancellation
    ON cancellation.task_id = this.task_id AND cancellation.attempt = this.attempt
LEFT JOIN task_engine_cancel_requests AS request
    ON request.task_id = this.task_id AND request.attempt = this.attempt
