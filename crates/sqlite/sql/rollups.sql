-- By step of ?3 microseconds, from the minute of ?1 until ?2: a range of the key.
SELECT
    minute / ?3 * ?3, task_class, sum(ok), sum(failed), sum(other), sum(run_us), max(run_max_us),
    max(wait_max_us), sum(run_0), sum(run_1), sum(run_2), sum(run_3), sum(run_4), sum(run_5),
    sum(run_6), sum(run_7), sum(run_8), sum(run_9), sum(run_10), sum(run_11), sum(run_12),
    sum(run_13), sum(run_14), sum(run_15), sum(run_16), sum(run_17), sum(run_18), sum(run_19),
    sum(run_20), sum(run_21), sum(run_22), sum(run_23), sum(run_24), sum(run_25), sum(run_26),
    sum(run_27), sum(wait_0), sum(wait_1), sum(wait_2), sum(wait_3), sum(wait_4), sum(wait_5),
    sum(wait_6), sum(wait_7), sum(wait_8), sum(wait_9), sum(wait_10), sum(wait_11), sum(wait_12),
    sum(wait_13), sum(wait_14), sum(wait_15), sum(wait_16), sum(wait_17), sum(wait_18),
    sum(wait_19), sum(wait_20), sum(wait_21), sum(wait_22), sum(wait_23), sum(wait_24),
    sum(wait_25), sum(wait_26), sum(wait_27)
FROM task_engine_figures
WHERE minute >= ?1 / 60000000 * 60000000 AND minute <= ?2
GROUP BY 1, 2
ORDER BY 1, 2
