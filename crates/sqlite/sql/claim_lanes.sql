-- The lanes of a claimer (queue, class, priority) that have waiting tasks, from
-- priority ?3 up, those of paused queues left out, highest priority first. Each step of the recursion is one search in the index
-- task_engine_waiting_lanes, whatever the number of tasks in a lane; and because
-- of the ORDER BY inside, rows come one by one in their final order, so that a
-- claim that is full stops the search.
WITH RECURSIVE lanes (queue, task_class, priority) AS (
    SELECT
        queues.value,
        classes.value,
        (
            SELECT max(waiting.priority)
            FROM task_engine_waiting_tasks AS waiting
            WHERE waiting.queue = queues.value AND waiting.task_class = classes.value
        )
    FROM json_each(?1) AS queues CROSS JOIN json_each(?2) AS classes
    WHERE NOT EXISTS (
        SELECT 1 FROM task_engine_paused_queues AS paused WHERE paused.queue = queues.value
    )
    UNION ALL
    SELECT
        lanes.queue,
        lanes.task_class,
        (
            SELECT max(waiting.priority)
            FROM task_engine_waiting_tasks AS waiting
            WHERE waiting.queue = lanes.queue
                AND waiting.task_class = lanes.task_class
                AND waiting.priority < lanes.priority
        )
    FROM lanes
    WHERE lanes.priority > ?3
    ORDER BY 3 DESC
)
SELECT queue, task_class, priority FROM lanes WHERE priority >= ?3
