-- Which of these attempts ended well, by the word of their own holder: nobody
-- else says that. By the primary key.
SELECT e.task_id, e.attempt
FROM unnest($1::bigint[], $2::integer[], $3::bigint[]) AS a(task_id, attempt, claim_id)
JOIN task_engine.ended_executions e
  ON e.task_id = a.task_id AND e.attempt = a.attempt AND e.claim_id = a.claim_id
WHERE e.error IS NULL
