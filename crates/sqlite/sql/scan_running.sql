-- Those that run, from the claims.
SELECT task_id AS id FROM task_engine_held_attempts WHERE task_id >= ?1 AND task_id < ?2
