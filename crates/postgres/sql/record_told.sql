-- How attempts took it that they were told to end: in the transaction that ends
-- them, so that a wish and its answer are told by the same record. The wish is
-- there until the end of its attempt can be seen.
INSERT INTO task_engine.cancellations (task_id, attempt, requested_at, told_at, answer)
SELECT t.task_id, t.attempt, coalesce(r.requested_at, told.at), told.at, t.answer
FROM unnest($1::bigint[], $2::integer[], $3::bigint[], $4::text[])
  AS t(task_id, attempt, ago_us, answer)
CROSS JOIN LATERAL (
  SELECT clock_timestamp() - t.ago_us * interval '1 microsecond' AS at
) AS told
LEFT JOIN task_engine.cancel_requests r ON r.task_id = t.task_id AND r.attempt = t.attempt
ORDER BY t.task_id, t.attempt
ON CONFLICT (task_id, attempt) DO NOTHING
