-- name: step_insert
-- The first record of a name wins. The caller has checked that the attempt may record. By
-- the key.
INSERT INTO task_engine_steps
    (task_id, name, number, attempt, kind, result, until, started_at, recorded_at)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)
ON CONFLICT (task_id, name) DO NOTHING;

-- name: step
-- One recorded step. By its key.
SELECT name, number, kind, attempt, result, until, started_at, recorded_at
FROM task_engine_steps
WHERE task_id = ?1 AND name = ?2;

-- name: steps
-- The steps of a task, in the order of their numbers. A range of the primary key, sorted:
-- at most a thousand. Two attempts of one task may have used the same number.
SELECT name, number, kind, attempt, result, until, started_at, recorded_at
FROM task_engine_steps
WHERE task_id = ?1
ORDER BY number, recorded_at, name;

-- name: dependency_insert
-- A task waits for a child. Two calls may have the same one, if it is unique.
INSERT INTO task_engine_task_dependencies (task_id, depends_on)
VALUES (?1, ?2)
ON CONFLICT (task_id, depends_on) DO NOTHING;

-- name: steps_copy
-- The steps of task ?2 with a number below ?3, for the new task ?1. No attempt of the new
-- task has recorded them, so they have attempt 0. A range of the primary key.
INSERT INTO task_engine_steps
    (task_id, name, number, attempt, kind, result, until, started_at, recorded_at)
SELECT ?1, name, number, 0, kind, result, until, started_at, recorded_at
FROM task_engine_steps
WHERE task_id = ?2 AND number < ?3;

-- name: signals_copy
-- The signals and timeouts of the copied waits. A signal that came early for a later wait
-- stays behind: the new task waits for its own. By keys.
INSERT INTO task_engine_signals (task_id, name, payload, sent_at, timed_out)
SELECT ?1, signal.name, signal.payload, signal.sent_at, signal.timed_out
FROM task_engine_steps AS step
CROSS JOIN task_engine_signals AS signal ON signal.task_id = ?2 AND signal.name = step.name
WHERE step.task_id = ?1 AND step.kind = 'wait';

-- name: dependencies_copy
-- The children of the copied calls; the end of a call has the numbers of attempts. A range
-- of the primary key.
INSERT INTO task_engine_task_dependencies (task_id, depends_on)
SELECT ?1, child.value
FROM task_engine_steps AS step, json_each(step.result) AS child
WHERE step.task_id = ?1 AND step.kind = 'call' AND step.name NOT LIKE '%#ended'
ON CONFLICT (task_id, depends_on) DO NOTHING;

-- name: conditions_copy
-- What another task depends on, without what was removed. A range of the primary key.
INSERT INTO task_engine_task_dependencies (task_id, depends_on, condition)
SELECT ?1, dependency.depends_on, dependency.condition
FROM task_engine_task_dependencies AS dependency
JOIN task_engine_created_tasks AS created ON created.id = dependency.depends_on
WHERE dependency.task_id = ?2 AND dependency.condition IS NOT NULL
ON CONFLICT (task_id, depends_on) DO NOTHING;

-- name: signal_insert
-- The first signal, or the timeout, of a name wins. By the key.
INSERT INTO task_engine_signals (task_id, name, payload, sent_at, timed_out)
VALUES (?1, ?2, ?3, ?4, ?5)
ON CONFLICT (task_id, name) DO NOTHING;

-- name: signal
-- One signal, or the timeout of its wait. By its key.
SELECT name, payload, sent_at, timed_out
FROM task_engine_signals
WHERE task_id = ?1 AND name = ?2;

-- name: signals
-- The signals of a task, in the order of their times. A range of the primary key, sorted:
-- there are few.
SELECT name, payload, sent_at, timed_out
FROM task_engine_signals
WHERE task_id = ?1
ORDER BY sent_at, name;

-- name: signal_arrived
-- Whether one of these signals has been sent, or its wait has timed out. By the key of each.
SELECT EXISTS (
    SELECT 1
    FROM json_each(?2) AS awaited
    CROSS JOIN task_engine_signals AS signal
        ON signal.task_id = ?1 AND signal.name = awaited.value
);

-- name: next_unfinished_child
-- The first child from an id on that has not ended. Reads the primary key of the
-- dependencies from there, and stops at the first one; ends and tasks by their keys.
SELECT depends_on
FROM task_engine_awaited_children
WHERE task_id = ?1 AND depends_on >= ?2 AND NOT has_ended
ORDER BY depends_on
LIMIT 1;

-- name: suspended_insert
-- The task waits for later: it is not written for a task that is due, or that a cancel
-- request has ended. A row of an earlier suspension is replaced. By keys.
INSERT INTO task_engine_suspended_tasks (task_id, attempt, signals, watching)
SELECT task_id, ?2, ?3, ?4
FROM task_engine_waiting_tasks
WHERE task_id = ?1 AND attempt = ?2 + 1 AND due_at > ?5
ON CONFLICT (task_id) DO UPDATE
SET attempt = excluded.attempt, signals = excluded.signals, watching = excluded.watching,
    blocked_on = NULL, late_watch = 0;

-- name: suspended
-- A suspended task. By its key.
SELECT task_id, attempt, signals, watching FROM task_engine_suspended_tasks WHERE task_id = ?1;

-- name: suspended_for_signal
-- A task that is suspended until this signal. By its key.
SELECT task_id, attempt, signals, watching
FROM task_engine_suspended_tasks AS suspended
WHERE task_id = ?1
    AND EXISTS (SELECT 1 FROM json_each(suspended.signals) AS awaited WHERE awaited.value = ?2);

-- name: suspended_watching
-- The tasks that watch a child. By task_engine_suspended_tasks_by_watched.
SELECT task_id, attempt, signals, watching
FROM task_engine_suspended_tasks
WHERE watching = ?1
ORDER BY task_id;

-- name: suspended_after
-- The next suspended tasks, blocked ones included. A range of the key.
SELECT task_id, attempt, signals, watching, blocked_on
FROM task_engine_suspended_tasks
WHERE task_id > ?1
ORDER BY task_id
LIMIT ?2;

-- name: suspended_watch
-- The next child is watched. By the key.
UPDATE task_engine_suspended_tasks SET watching = ?2 WHERE task_id = ?1;

-- name: suspended_delete
-- The task is not suspended any more. By its key.
DELETE FROM task_engine_suspended_tasks WHERE task_id = ?1;

-- name: tasks_suspended
-- Whether a task is suspended. Reads the end of the table.
SELECT EXISTS (SELECT 1 FROM task_engine_suspended_tasks);

-- name: child_outcome
-- The end of a task by this attempt, or its newest one. A part of the primary key.
SELECT ends_task, result, error, attempt
FROM task_engine_ended_executions
WHERE task_id = ?1 AND (?2 IS NULL OR attempt = ?2)
ORDER BY attempt DESC
LIMIT 1;
