-- name: create
-- Calls the public function, as every creation path does. Delays are microseconds, in $4.
SELECT task_engine.create_tasks(
  $1::text[], $2::jsonb[], $3::timestamptz[],
  (SELECT array_agg(d.us * interval '1 microsecond' ORDER BY d.place)
   FROM unnest($4::bigint[]) WITH ORDINALITY AS d(us, place)),
  $5::integer[], $6::text[], $7::jsonb[]);

-- name: create_unique
-- As create, for calls with unique tasks ($8 key, $9 scope, $10 action on a conflict).
-- Delays are microseconds, in $4.
SELECT u.task_id, u.outcome FROM task_engine.create_unique_tasks(
  $1::text[], $2::jsonb[], $3::timestamptz[],
  (SELECT array_agg(d.us * interval '1 microsecond' ORDER BY d.place)
   FROM unnest($4::bigint[]) WITH ORDINALITY AS d(us, place)),
  $5::integer[], $6::text[], $7::jsonb[], $8::text[], $9::text[], $10::text[]) AS u;

-- name: create_from_text
-- As create, with times and JSON as text: for drivers without types for them.
SELECT task_engine.create_tasks(
  $1::text[], $2::text[]::jsonb[], $3::text[]::timestamptz[],
  (SELECT array_agg(d.us * interval '1 microsecond' ORDER BY d.place)
   FROM unnest($4::bigint[]) WITH ORDINALITY AS d(us, place)),
  $5::integer[], $6::text[], $7::text[]::jsonb[]);

-- name: create_unique_from_text
-- As create_unique, with times and JSON as text.
SELECT u.task_id, u.outcome FROM task_engine.create_unique_tasks(
  $1::text[], $2::text[]::jsonb[], $3::text[]::timestamptz[],
  (SELECT array_agg(d.us * interval '1 microsecond' ORDER BY d.place)
   FROM unnest($4::bigint[]) WITH ORDINALITY AS d(us, place)),
  $5::integer[], $6::text[], $7::text[]::jsonb[], $8::text[], $9::text[], $10::text[]) AS u;
