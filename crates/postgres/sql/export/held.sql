-- All that engines hold: as many rows as busy workers.
SELECT h.task_id, h.attempt, h.retry_number, h.instance_id, h.claimed_at,
  r.requested_at AS cancel_requested_at
FROM task_engine.held_attempts h
LEFT JOIN task_engine.cancel_requests r ON r.task_id = h.task_id AND r.attempt = h.attempt
