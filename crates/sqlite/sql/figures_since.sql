-- By step of ?3 microseconds, from ?1 until ?2: a range of the key.
SELECT
    minute / ?3 * ?3, task_class, sum(ok), sum(failed), sum(other), sum(run_us), sum(run_0),
    sum(run_1), sum(run_2), sum(run_3), sum(run_4), sum(run_5), sum(run_6), sum(run_7),
    sum(run_8), sum(run_9), sum(run_10), sum(run_11), sum(wait_0), sum(wait_1), sum(wait_2),
    sum(wait_3), sum(wait_4), sum(wait_5), sum(wait_6), sum(wait_7), sum(wait_8), sum(wait_9),
    sum(wait_10), sum(wait_11)
FROM task_engine_figures
WHERE minute >= ?1 / ?3 * ?3 AND minute <= ?2
GROUP BY 1, 2
ORDER BY 1, 2
