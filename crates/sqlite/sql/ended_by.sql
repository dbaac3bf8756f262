-- Which claim's holder ended an attempt; null if it was somebody else. By its key.
SELECT claim_id FROM task_engine_ended_executions WHERE task_id = ?1 AND attempt = ?2
