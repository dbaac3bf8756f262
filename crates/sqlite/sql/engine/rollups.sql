-- name: write_rollups
-- The current counts of an instance: a repeated or late row changes nothing. By the key.
INSERT INTO task_engine_rollups AS stored (
    minute, task_class, instance_id, generation, ok, failed, other, run_us, run_max_us,
    wait_max_us, run_0, run_1, run_2, run_3, run_4, run_5, run_6, run_7, run_8, run_9, run_10,
    run_11, run_12, run_13, run_14, run_15, run_16, run_17, run_18, run_19, run_20, run_21,
    run_22, run_23, run_24, run_25, run_26, run_27, wait_0, wait_1, wait_2, wait_3, wait_4,
    wait_5, wait_6, wait_7, wait_8, wait_9, wait_10, wait_11, wait_12, wait_13, wait_14, wait_15,
    wait_16, wait_17, wait_18, wait_19, wait_20, wait_21, wait_22, wait_23, wait_24, wait_25,
    wait_26, wait_27
)
VALUES (
    ?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19, ?20,
    ?21, ?22, ?23, ?24, ?25, ?26, ?27, ?28, ?29, ?30, ?31, ?32, ?33, ?34, ?35, ?36, ?37, ?38, ?39,
    ?40, ?41, ?42, ?43, ?44, ?45, ?46, ?47, ?48, ?49, ?50, ?51, ?52, ?53, ?54, ?55, ?56, ?57, ?58,
    ?59, ?60, ?61, ?62, ?63, ?64, ?65, ?66
)
ON CONFLICT (minute, task_class, instance_id, generation) DO UPDATE SET
    ok = excluded.ok, failed = excluded.failed, other = excluded.other, run_us = excluded.run_us,
    run_max_us = excluded.run_max_us, wait_max_us = excluded.wait_max_us, run_0 = excluded.run_0,
    run_1 = excluded.run_1, run_2 = excluded.run_2, run_3 = excluded.run_3,
    run_4 = excluded.run_4, run_5 = excluded.run_5, run_6 = excluded.run_6,
    run_7 = excluded.run_7, run_8 = excluded.run_8, run_9 = excluded.run_9,
    run_10 = excluded.run_10, run_11 = excluded.run_11, run_12 = excluded.run_12,
    run_13 = excluded.run_13, run_14 = excluded.run_14, run_15 = excluded.run_15,
    run_16 = excluded.run_16, run_17 = excluded.run_17, run_18 = excluded.run_18,
    run_19 = excluded.run_19, run_20 = excluded.run_20, run_21 = excluded.run_21,
    run_22 = excluded.run_22, run_23 = excluded.run_23, run_24 = excluded.run_24,
    run_25 = excluded.run_25, run_26 = excluded.run_26, run_27 = excluded.run_27,
    wait_0 = excluded.wait_0, wait_1 = excluded.wait_1, wait_2 = excluded.wait_2,
    wait_3 = excluded.wait_3, wait_4 = excluded.wait_4, wait_5 = excluded.wait_5,
    wait_6 = excluded.wait_6, wait_7 = excluded.wait_7, wait_8 = excluded.wait_8,
    wait_9 = excluded.wait_9, wait_10 = excluded.wait_10, wait_11 = excluded.wait_11,
    wait_12 = excluded.wait_12, wait_13 = excluded.wait_13, wait_14 = excluded.wait_14,
    wait_15 = excluded.wait_15, wait_16 = excluded.wait_16, wait_17 = excluded.wait_17,
    wait_18 = excluded.wait_18, wait_19 = excluded.wait_19, wait_20 = excluded.wait_20,
    wait_21 = excluded.wait_21, wait_22 = excluded.wait_22, wait_23 = excluded.wait_23,
    wait_24 = excluded.wait_24, wait_25 = excluded.wait_25, wait_26 = excluded.wait_26,
    wait_27 = excluded.wait_27
WHERE stored.ok + stored.failed + stored.other < excluded.ok + excluded.failed + excluded.other;

-- name: rollups
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
FROM task_engine_rollups
WHERE minute >= ?1 / 60000000 * 60000000 AND minute <= ?2
GROUP BY 1, 2
ORDER BY 1, 2;

-- name: prune_rollups
-- The oldest before ?1, by the key, up to ?2.
DELETE FROM task_engine_rollups
WHERE (minute, task_class, instance_id, generation) IN (
    SELECT minute, task_class, instance_id, generation
    FROM task_engine_rollups
    WHERE minute < ?1
    ORDER BY minute
    LIMIT ?2
);
