-- name: write_rollups
-- The current counts of instance $1: a repeated or late row changes nothing. By the key.
-- Each histogram is one array.
INSERT INTO task_engine.rollups AS f
  (minute, task_class, instance_id, generation, ok, failed, other, run_us, run_max_us, wait_max_us, run, wait)
SELECT to_timestamp(r.minute * 60), r.task_class, $1, r.generation, r.ok, r.failed, r.other, r.run_us,
  r.run_max_us, r.wait_max_us,
  ($11::bigint[])[(r.n - 1) * 28 + 1 : r.n * 28], ($12::bigint[])[(r.n - 1) * 28 + 1 : r.n * 28]
FROM unnest($2::bigint[], $3::text[], $4::integer[], $5::bigint[], $6::bigint[], $7::bigint[], $8::bigint[],
    $9::bigint[], $10::bigint[])
  WITH ORDINALITY AS r (minute, task_class, generation, ok, failed, other, run_us, run_max_us, wait_max_us, n)
ORDER BY 1, 2, 4
ON CONFLICT (minute, task_class, instance_id, generation) DO UPDATE
SET ok = excluded.ok, failed = excluded.failed, other = excluded.other,
  run_us = excluded.run_us, run_max_us = excluded.run_max_us, wait_max_us = excluded.wait_max_us,
  run = excluded.run, wait = excluded.wait
WHERE f.ok + f.failed + f.other < excluded.ok + excluded.failed + excluded.other;

-- name: rollups
-- By step of $2 seconds, from the minute that was $1 seconds ago: a range of the key.
SELECT to_timestamp(floor(extract(epoch FROM minute) / $2::bigint) * $2::bigint) AS at, task_class,
  sum(ok)::bigint AS ok, sum(failed)::bigint AS failed, sum(other)::bigint AS other,
  sum(run_us)::bigint AS run_us, max(run_max_us) AS run_max_us, max(wait_max_us) AS wait_max_us,
  ARRAY[
    sum(run[1]), sum(run[2]), sum(run[3]), sum(run[4]), sum(run[5]), sum(run[6]), sum(run[7]),
    sum(run[8]), sum(run[9]), sum(run[10]), sum(run[11]), sum(run[12]), sum(run[13]),
    sum(run[14]), sum(run[15]), sum(run[16]), sum(run[17]), sum(run[18]), sum(run[19]),
    sum(run[20]), sum(run[21]), sum(run[22]), sum(run[23]), sum(run[24]), sum(run[25]),
    sum(run[26]), sum(run[27]), sum(run[28])
  ]::bigint[] AS run,
  ARRAY[
    sum(wait[1]), sum(wait[2]), sum(wait[3]), sum(wait[4]), sum(wait[5]), sum(wait[6]),
    sum(wait[7]), sum(wait[8]), sum(wait[9]), sum(wait[10]), sum(wait[11]), sum(wait[12]),
    sum(wait[13]), sum(wait[14]), sum(wait[15]), sum(wait[16]), sum(wait[17]), sum(wait[18]),
    sum(wait[19]), sum(wait[20]), sum(wait[21]), sum(wait[22]), sum(wait[23]), sum(wait[24]),
    sum(wait[25]), sum(wait[26]), sum(wait[27]), sum(wait[28])
  ]::bigint[] AS wait
FROM task_engine.rollups
WHERE minute >= to_timestamp(floor((extract(epoch FROM now()) - $1::bigint) / 60) * 60)
  AND minute <= now()
GROUP BY 1, 2
ORDER BY 1, task_class COLLATE "C";

-- name: prune_rollups
-- The oldest, by the key, up to $2.
DELETE FROM task_engine.rollups WHERE ctid = ANY (ARRAY(
  SELECT ctid FROM task_engine.rollups
  WHERE minute < now() - $1::bigint * interval '1 microsecond'
  ORDER BY minute LIMIT $2::bigint));
