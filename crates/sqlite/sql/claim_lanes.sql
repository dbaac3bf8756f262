-- The lanes of an engine (queue, class, priority) that have waiting tasks,
-- highest priority first. Each step of the recursion is one search in the index
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
    WHERE lanes.priority IS NOT NULL
    ORDER BY 3 DESC
)
SELECT queue, task_class, priority FROM lanes WHERE priority IS NOT NULL
