-- How far tests have moved the clock on. One row, by its key.
SELECT ahead FROM testing_clock_of_task_engine WHERE id = 1
