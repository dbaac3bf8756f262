-- name: file
-- The file itself: every page, and every index against its table.
SELECT 'the database file is damaged: ' || integrity_check
FROM pragma_integrity_check
WHERE integrity_check <> 'ok';

-- name: task_without_state
-- A task is somewhere: it waits, is held, or its last attempt ended it.
SELECT 'task ' || created.id || ' is lost: it does not wait, no engine holds it, and no attempt has ended it'
FROM task_engine_created_tasks AS created
WHERE created.id NOT IN (SELECT task_id FROM task_engine_waiting_tasks)
    AND created.id NOT IN (SELECT task_id FROM task_engine_held_attempts)
    AND (
        SELECT last.ends_task
        FROM task_engine_ended_executions AS last
        WHERE last.task_id = created.id
        ORDER BY last.attempt DESC
        LIMIT 1
    ) IS NULL
ORDER BY created.id;

-- name: waiting_and_held
-- A task is in one place only.
SELECT 'task ' || task_id || ' waits, and an engine holds its attempt ' || attempt
FROM task_engine_held_attempts
WHERE task_id IN (SELECT task_id FROM task_engine_waiting_tasks)
ORDER BY task_id;

-- name: held_twice
-- One attempt at a time.
SELECT 'task ' || task_id || ' is held ' || count(*) || ' times: attempts ' || group_concat(attempt, ', ')
FROM task_engine_held_attempts
GROUP BY task_id
HAVING count(*) > 1
ORDER BY task_id;

-- name: waiting_but_not_created
-- Creation is atomic: every waiting task was created.
SELECT 'task ' || task_id || ' waits, but was never created'
FROM task_engine_waiting_tasks
WHERE task_id NOT IN (SELECT id FROM task_engine_created_tasks)
ORDER BY task_id;

-- name: ended_but_not_created
-- Retention removes a task whole.
SELECT DISTINCT 'task ' || task_id || ' has ended attempts, but was never created'
FROM task_engine_ended_executions
WHERE task_id NOT IN (SELECT id FROM task_engine_created_tasks)
ORDER BY task_id;

-- name: durable_but_not_created
-- Retention removes a task whole. A child that a task depends on may be removed before it.
SELECT 'task ' || task_id || ' has ' || what || ', but was never created'
FROM (
    SELECT task_id, 'steps' AS what FROM task_engine_steps
    UNION
    SELECT task_id, 'signals' FROM task_engine_signals
    UNION
    SELECT task_id, 'children' FROM task_engine_task_dependencies
    UNION
    SELECT task_id, 'a suspension' FROM task_engine_suspended_tasks
    UNION
    SELECT task_id, 'a retried end' FROM task_engine_reopened_tasks
)
WHERE task_id NOT IN (SELECT id FROM task_engine_created_tasks)
ORDER BY task_id, what;

-- name: not_resumed
-- Suspended tasks whose signal was sent, or whose watched child ended, more than a minute
-- before now (?1). After an end and before its look at the parents, this is as it should be.
-- A look that a crash prevented is made up for by the heartbeats of an engine.
SELECT 'task ' || suspended.task_id || ' still waits, although ' || event.what || ' more than a minute ago'
FROM task_engine_suspended_tasks AS suspended
JOIN task_engine_waiting_tasks AS waiting
    ON waiting.task_id = suspended.task_id AND waiting.attempt = suspended.attempt + 1
JOIN (
    SELECT awaiting.task_id, 'its signal ' || signal.name || ' was sent' AS what, signal.sent_at AS happened_at
    FROM task_engine_suspended_tasks AS awaiting, json_each(awaiting.signals) AS awaited
    JOIN task_engine_signals AS signal
        ON signal.task_id = awaiting.task_id AND signal.name = awaited.value
    UNION ALL
    SELECT awaiting.task_id, 'its child ' || ended.task_id || ' ended', ended.stopped_at
    FROM task_engine_suspended_tasks AS awaiting
    JOIN task_engine_ended_executions AS ended ON ended.task_id = awaiting.watching
    WHERE ended.ends_task IS NOT NULL
        AND NOT EXISTS (
            SELECT 1
            FROM task_engine_ended_executions AS later
            WHERE later.task_id = ended.task_id AND later.attempt > ended.attempt
        )
) AS event ON event.task_id = suspended.task_id
WHERE waiting.due_at > ?1
    AND event.happened_at < ?1 - 60000000
    AND EXISTS (
        SELECT 1
        FROM task_engine_instances
        WHERE stopped_at IS NULL AND lost_at IS NULL AND heartbeat_at + lease_ms * 1000 > ?1
            AND started_at < ?1 - 60000000
    )
ORDER BY suspended.task_id;

-- name: blocked_not_resumed
-- Blocked tasks whose dependencies decided more than a minute before now (?1): one that was
-- needed has not succeeded, or all have ended. As in not_resumed.
SELECT 'task ' || suspended.task_id
    || ' still waits for others, although its dependencies decided more than a minute ago'
FROM task_engine_suspended_tasks AS suspended
JOIN task_engine_waiting_tasks AS waiting
    ON waiting.task_id = suspended.task_id
    AND waiting.attempt = suspended.attempt + 1
    AND substr(waiting.queue, 1, 1) = char(30)
WHERE EXISTS (
        SELECT 1
        FROM task_engine_instances
        WHERE stopped_at IS NULL AND lost_at IS NULL AND heartbeat_at + lease_ms * 1000 > ?1
            AND started_at < ?1 - 60000000
    )
    AND (
        SELECT max(state.condition = 'success' AND state.state IN ('failed', 'cancelled')
                AND state.ended_at < ?1 - 60000000)
            OR (
                max(state.state = 'open') = 0
                AND coalesce(max(state.ended_at), 0) < ?1 - 60000000
            )
        FROM (
            SELECT
                dependency.condition,
                dependency.state,
                (
                    SELECT ended.stopped_at
                    FROM task_engine_ended_executions AS ended
                    WHERE ended.task_id = dependency.depends_on
                    ORDER BY ended.attempt DESC
                    LIMIT 1
                ) AS ended_at
            FROM task_engine_dependency_states AS dependency
            WHERE dependency.task_id = suspended.task_id
        ) AS state
    )
ORDER BY suspended.task_id;

-- name: blocked_row_invalid
-- A task in the queue of blocked tasks waits for one that it depends on, and is in its own
-- queue. Of a task that was cancelled or started otherwise, the suspended row is removed later.
SELECT 'task ' || waiting.task_id || CASE
    WHEN suspended.task_id IS NULL
    THEN ' waits in the queue of blocked tasks, but for no task'
    WHEN dependency.task_id IS NULL
    THEN ' waits for task ' || suspended.blocked_on || ', on which it does not depend'
    ELSE ' waits in the queue ' || substr(waiting.queue, 2) || ', but belongs to the queue ' || created.queue
END
FROM task_engine_waiting_tasks AS waiting
JOIN task_engine_created_tasks AS created ON created.id = waiting.task_id
LEFT JOIN task_engine_suspended_tasks AS suspended
    ON suspended.task_id = waiting.task_id
    AND suspended.attempt + 1 = waiting.attempt
    AND suspended.blocked_on IS NOT NULL
LEFT JOIN task_engine_task_dependencies AS dependency
    ON dependency.task_id = suspended.task_id
    AND dependency.depends_on = suspended.blocked_on
    AND dependency.condition IS NOT NULL
WHERE substr(waiting.queue, 1, 1) = char(30)
    AND (dependency.task_id IS NULL OR waiting.queue <> char(30) || created.queue)
ORDER BY waiting.task_id;

-- name: not_marked_as_blocked
-- A task that waits for others is in the queue of blocked tasks: otherwise an engine may start
-- it too early.
SELECT 'task ' || waiting.task_id || ' waits for task ' || suspended.blocked_on
    || ', but not in the queue of blocked tasks'
FROM task_engine_suspended_tasks AS suspended
JOIN task_engine_waiting_tasks AS waiting
    ON waiting.task_id = suspended.task_id AND waiting.attempt = suspended.attempt + 1
WHERE suspended.blocked_on IS NOT NULL AND substr(waiting.queue, 1, 1) <> char(30)
ORDER BY waiting.task_id;

-- name: waiting_with_old_attempt
-- Attempt numbers only grow: a used one would violate the primary key at its end.
SELECT 'task ' || waiting.task_id || ' waits as attempt ' || waiting.attempt
    || ', but attempt ' || max(ended.attempt) || ' has ended already'
FROM task_engine_waiting_tasks AS waiting
JOIN task_engine_ended_executions AS ended ON ended.task_id = waiting.task_id
GROUP BY waiting.task_id
HAVING waiting.attempt <= max(ended.attempt)
ORDER BY waiting.task_id;

-- name: held_with_old_attempt
-- Attempt numbers only grow: a held attempt is the newest.
SELECT 'task ' || held.task_id || ' is held as attempt ' || held.attempt
    || ', but attempt ' || max(ended.attempt) || ' has ended already'
FROM task_engine_held_attempts AS held
JOIN task_engine_ended_executions AS ended ON ended.task_id = held.task_id
GROUP BY held.task_id, held.attempt
HAVING held.attempt < max(ended.attempt)
ORDER BY held.task_id;

-- name: ran_after_success
-- A task that succeeded does not run again. A failed or cancelled one may: an operator
-- has sent it back.
SELECT 'task ' || ended.task_id || ' had stopped with attempt ' || ended.attempt || ', and went on after that'
FROM task_engine_ended_executions AS ended
WHERE ended.ends_task = 'stopped'
    AND (
        EXISTS (
            SELECT 1
            FROM task_engine_ended_executions AS later
            WHERE later.task_id = ended.task_id AND later.attempt > ended.attempt
        )
        OR ended.task_id IN (SELECT task_id FROM task_engine_waiting_tasks)
        OR ended.task_id IN (SELECT task_id FROM task_engine_held_attempts)
    )
ORDER BY ended.task_id;

-- name: incoherent_ending
-- An attempt either ends its task or has the due time of the next one; and a task has
-- stopped if, and only if, its attempt has no error.
SELECT 'task ' || task_id || ', attempt ' || attempt || ' has no coherent ending: '
    || 'ends_task ' || coalesce(ends_task, 'null')
    || ', retry_at ' || coalesce(retry_at, 'null')
    || CASE WHEN error IS NULL THEN ', no error' ELSE ', an error' END
FROM task_engine_ended_executions
WHERE (ends_task IS NULL) = (retry_at IS NULL)
    OR (error IS NULL) <> (ends_task IS 'stopped')
ORDER BY task_id, attempt;

-- name: stored_json
-- Every JSON value that is stored with a task: which task, which value, its text,
-- and whether it is an object.
SELECT id, 'the parameters' AS what, task_parameters AS stored, 1 AS is_object
FROM task_engine_created_tasks
UNION ALL
SELECT id, 'the context', context, 1 FROM task_engine_created_tasks
UNION ALL
SELECT task_id, 'the result of attempt ' || attempt, result, 0
FROM task_engine_ended_executions WHERE result IS NOT NULL
UNION ALL
SELECT task_id, 'the error of attempt ' || attempt, error, 0
FROM task_engine_ended_executions WHERE error IS NOT NULL
UNION ALL
SELECT task_id, 'the late result of attempt ' || attempt, coalesce(result, error), 0
FROM task_engine_late_results WHERE coalesce(result, error) IS NOT NULL
UNION ALL
SELECT task_id, 'the result of step ' || name, result, 0
FROM task_engine_steps WHERE result IS NOT NULL
UNION ALL
SELECT task_id, 'the payload of signal ' || name, payload, 0
FROM task_engine_signals;

-- name: held_by_unknown_instance
-- Recovery finds attempts that are held by known sessions only.
SELECT 'task ' || task_id || ' is held as attempt ' || attempt || ' by instance ' || instance_id || ', which does not exist'
FROM task_engine_held_attempts
WHERE instance_id NOT IN (SELECT id FROM task_engine_instances)
ORDER BY task_id;

-- name: report_without_attempt
-- Only an attempt that runs or has ended has reports.
SELECT 'task ' || task_id || ', attempt ' || attempt || ' has said something, but is neither held nor ended'
FROM task_engine_execution_progress AS progress
WHERE NOT EXISTS (
    SELECT 1
    FROM task_engine_ended_executions AS ended
    WHERE ended.task_id = progress.task_id AND ended.attempt = progress.attempt
)
AND NOT EXISTS (
    SELECT 1
    FROM task_engine_held_attempts AS held
    WHERE held.task_id = progress.task_id AND held.attempt = progress.attempt
)
ORDER BY task_id, attempt;

-- name: log_lines_out_of_range
-- The numbers of stored lines are within the number of logged lines.
SELECT 'task ' || log.task_id || ', attempt ' || log.attempt || ' has line ' || max(log.line)
    || ', but has said ' || coalesce(progress.lines, 0) || ' lines'
FROM task_engine_execution_logs AS log
LEFT JOIN task_engine_execution_progress AS progress
    ON progress.task_id = log.task_id AND progress.attempt = log.attempt
GROUP BY log.task_id, log.attempt
HAVING max(log.line) > coalesce(progress.lines, 0);

-- name: cancelled_but_not_ended
-- A cancel request is finished when its attempt has ended.
SELECT 'task ' || task_id || ', attempt ' || attempt || ' was to be cancelled, but has not ended'
FROM task_engine_cancellations AS cancellation
WHERE NOT EXISTS (
    SELECT 1
    FROM task_engine_ended_executions AS ended
    WHERE ended.task_id = cancellation.task_id AND ended.attempt = cancellation.attempt
)
ORDER BY task_id, attempt;

-- name: key_without_task
-- A unique key belongs to an existing task whose context contains it.
SELECT 'the unique key ' || held.unique_key || ' of class ' || held.task_class
    || ' belongs to task ' || held.task_id
    || CASE WHEN created.id IS NULL THEN ', which is not there' ELSE ', which has another class or key' END
FROM task_engine_unique_tasks AS held
LEFT JOIN task_engine_created_tasks AS created ON created.id = held.task_id
WHERE created.id IS NULL
    OR created.task_class <> held.task_class
    OR created.context ->> '$.unique_key' IS NOT held.unique_key;

-- name: fired_without_schedule
-- A slot that has fired belongs to a schedule, and is not awaited again.
SELECT 'slot ' || fired.slot || ' of schedule ' || fired.schedule_id
    || CASE WHEN schedule.id IS NULL THEN ' has no schedule' ELSE ' has fired and is awaited again' END
FROM task_engine_fired_slots AS fired
LEFT JOIN task_engine_schedules AS schedule ON schedule.id = fired.schedule_id
WHERE schedule.id IS NULL OR fired.slot >= schedule.next_at
ORDER BY fired.schedule_id, fired.slot;

-- name: limited_row_invalid
-- A task with a lane key waits in its own queue, which is marked; any other task in a queue
-- that is not.
SELECT 'task ' || waiting.task_id || CASE
    WHEN waiting.lane_key IS NULL THEN ' waits in the lanes of tasks with limits, but has no lane key'
    WHEN substr(waiting.queue, 1, 1) <> char(31) THEN ' has the lane key ' || waiting.lane_key || ', but waits with tasks without limits'
    ELSE ' waits in the queue ' || substr(waiting.queue, 2) || ', but belongs to the queue ' || created.queue
END
FROM task_engine_waiting_tasks AS waiting
JOIN task_engine_created_tasks AS created ON created.id = waiting.task_id
WHERE (waiting.lane_key IS NOT NULL) <> (substr(waiting.queue, 1, 1) = char(31))
    OR (waiting.lane_key IS NOT NULL AND waiting.queue <> char(31) || created.queue)
ORDER BY waiting.task_id;

-- name: limited_rows
-- Every task in the lane of its keys, with what these depend on.
SELECT
    waiting.task_id, created.task_class, created.queue, created.task_parameters, created.context,
    waiting.lane_key
FROM task_engine_waiting_tasks AS waiting
JOIN task_engine_created_tasks AS created ON created.id = waiting.task_id
WHERE waiting.lane_key IS NOT NULL
ORDER BY waiting.task_id;

-- name: inventory
-- Counts all rows. Reads every row, like the checks that it belongs to.
SELECT
    (SELECT count(*) FROM task_engine_created_tasks),
    (SELECT count(*) FROM task_engine_waiting_tasks),
    (SELECT count(*) FROM task_engine_held_attempts),
    (SELECT count(*) FROM task_engine_ended_executions),
    (SELECT count(*) FROM task_engine_schedules),
    (SELECT count(*) FROM task_engine_steps),
    (SELECT count(*) FROM task_engine_signals),
    (
        SELECT count(*)
        FROM task_engine_suspended_tasks AS suspended
        JOIN task_engine_waiting_tasks AS waiting
            ON waiting.task_id = suspended.task_id AND waiting.attempt = suspended.attempt + 1
    );
