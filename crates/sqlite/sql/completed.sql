-- Whether an attempt ended well by the word of its own holder. By its key.
SELECT 1
FROM task_engine_ended_executions
WHERE task_id = ?1 AND attempt = ?2 AND claim_id = ?3 AND error IS NULL
