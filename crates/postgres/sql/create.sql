-- Creation goes through the public door, so that every caller gets the same.
-- Waits come as microseconds, in $4.
SELECT task_engine.create_tasks(
  $1::text[], $2::jsonb[], $3::timestamptz[],
  (SELECT array_agg(d.us * interval '1 microsecond' ORDER BY d.place)
   FROM unnest($4::bigint[]) WITH ORDINALITY AS d(us, place)),
  $5::integer[], $6::text[], $7::jsonb[])
