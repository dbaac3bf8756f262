-- By step of $2 seconds, for the last $1 seconds: a range of the key.
SELECT to_timestamp(floor(extract(epoch FROM minute) / $2::bigint) * $2::bigint) AS at, task_class,
  sum(ok)::bigint AS ok, sum(failed)::bigint AS failed, sum(other)::bigint AS other,
  sum(run_us)::bigint AS run_us,
  ARRAY[sum(run[1]), sum(run[2]), sum(run[3]), sum(run[4]), sum(run[5]), sum(run[6]), sum(run[7]), sum(run[8]), sum(run[9]), sum(run[10]), sum(run[11]), sum(run[12])]::bigint[] AS run,
  ARRAY[sum(wait[1]), sum(wait[2]), sum(wait[3]), sum(wait[4]), sum(wait[5]), sum(wait[6]), sum(wait[7]), sum(wait[8]), sum(wait[9]), sum(wait[10]), sum(wait[11]), sum(wait[12])]::bigint[] AS wait
FROM task_engine.figures
WHERE minute >= to_timestamp(floor((extract(epoch FROM now()) - $1::bigint) / $2::bigint) * $2::bigint)
  AND minute <= now()
GROUP BY 1, 2
ORDER BY 1, task_class COLLATE "C"
