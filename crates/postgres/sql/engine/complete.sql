-- name: complete
-- Completes a task in the application's transaction. See the function for the details.
SELECT task_engine.complete_attempt(
  $1::bigint, $2::integer, $3::bigint, $4::jsonb, $5::integer,
  $6::bigint * interval '1 microsecond');

-- name: complete_from_text
-- As complete, with the result as text.
SELECT task_engine.complete_attempt(
  $1::bigint, $2::integer, $3::bigint, $4::text::jsonb, $5::integer,
  $6::bigint * interval '1 microsecond');

-- name: completed
-- The attempts that were completed by their own engine: only it records a success. By the
-- primary key.
SELECT e.task_id, e.attempt
FROM unnest($1::bigint[], $2::integer[], $3::bigint[]) AS a(task_id, attempt, claim_id)
JOIN task_engine.ended_executions e
  ON e.task_id = a.task_id AND e.attempt = a.attempt AND e.claim_id = a.claim_id
WHERE e.error IS NULL;

-- name: lock_claims
-- Which of these claims are still there; they stay until the end of the
-- transaction. A missing claim was reclaimed, its attempts have ended, and
-- retention may have removed their tasks: nothing may be written about those.
SELECT id FROM task_engine.claims WHERE id = ANY ($1::bigint[]) ORDER BY id FOR KEY SHARE;
