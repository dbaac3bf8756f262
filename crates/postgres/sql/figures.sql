-- The numbers of instance $1 as they stand: sent again, or arriving late, they
-- change nothing. By the key; the histograms come in one piece each.
INSERT INTO task_engine.figures AS f
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
WHERE f.ok + f.failed + f.other < excluded.ok + excluded.failed + excluded.other
