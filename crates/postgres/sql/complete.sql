-- Completes a task in the application's transaction. What is there to know is
-- with the function.
SELECT task_engine.complete_attempt(
  $1::bigint, $2::integer, $3::bigint, $4::jsonb, $5::integer,
  $6::bigint * interval '1 microsecond')
