-- The numbers of an instance as they stand: sent again, or arriving late, they
-- change nothing. By the key.
INSERT INTO task_engine_figures AS figures (
    minute, task_class, instance_id, generation, ok, failed, other, run_us, run_0, run_1, run_2,
    run_3, run_4, run_5, run_6, run_7, run_8, run_9, run_10, run_11, wait_0, wait_1, wait_2,
    wait_3, wait_4, wait_5, wait_6, wait_7, wait_8, wait_9, wait_10, wait_11
)
VALUES (
    ?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19, ?20,
    ?21, ?22, ?23, ?24, ?25, ?26, ?27, ?28, ?29, ?30, ?31, ?32
)
ON CONFLICT (minute, task_class, instance_id, generation) DO UPDATE SET
    ok = excluded.ok, failed = excluded.failed, other = excluded.other,
    run_us = excluded.run_us, run_0 = excluded.run_0, run_1 = excluded.run_1,
    run_2 = excluded.run_2, run_3 = excluded.run_3, run_4 = excluded.run_4,
    run_5 = excluded.run_5, run_6 = excluded.run_6, run_7 = excluded.run_7,
    run_8 = excluded.run_8, run_9 = excluded.run_9, run_10 = excluded.run_10,
    run_11 = excluded.run_11, wait_0 = excluded.wait_0, wait_1 = excluded.wait_1,
    wait_2 = excluded.wait_2, wait_3 = excluded.wait_3, wait_4 = excluded.wait_4,
    wait_5 = excluded.wait_5, wait_6 = excluded.wait_6, wait_7 = excluded.wait_7,
    wait_8 = excluded.wait_8, wait_9 = excluded.wait_9, wait_10 = excluded.wait_10,
    wait_11 = excluded.wait_11
WHERE figures.ok + figures.failed + figures.other < excluded.ok + excluded.failed + excluded.other
