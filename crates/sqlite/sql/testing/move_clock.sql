INSERT INTO testing_clock_of_task_engine (id, ahead) VALUES (1, ?1)
ON CONFLICT (id) DO UPDATE SET ahead = ?1
