-- name: schedule
-- One schedule, by its unique name.
SELECT
    id, version, name, definition, declared, overlap, anchor, paused_at, pause_reason, error, next_at,
    last_slot, last_task_id, created_at, updated_at
FROM task_engine_schedules
WHERE name = ?1;

-- name: schedules
-- A page of schedules, by the index on their names.
SELECT
    id, version, name, definition, declared, overlap, anchor, paused_at, pause_reason, error, next_at,
    last_slot, last_task_id, created_at, updated_at
FROM task_engine_schedules
WHERE name > ?1
ORDER BY name
LIMIT ?2;

-- name: schedule_insert
-- Inserts a schedule; nothing if the name is in use.
INSERT INTO task_engine_schedules
    (name, definition, declared, overlap, anchor, paused_at, pause_reason, error, next_at, created_at, updated_at)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?10)
ON CONFLICT (name) DO NOTHING;

-- name: schedule_update
-- Writes a schedule if it has not changed since it was read. By its id alone: a name that
-- is not UTF-8 was not read exactly.
UPDATE task_engine_schedules
SET version = version + 1,
    definition = ?2,
    declared = ?3,
    overlap = ?4,
    anchor = ?5,
    paused_at = ?6,
    pause_reason = ?7,
    error = ?8,
    next_at = ?9,
    updated_at = ?10
WHERE id = ?11 AND version = ?12;

-- name: schedule_remove
DELETE FROM task_engine_schedules WHERE name = ?1 RETURNING id;

-- name: schedule_remove_slots
DELETE FROM task_engine_fired_slots WHERE schedule_id = ?1;

-- name: schedule_remove_events
DELETE FROM task_engine_schedule_events WHERE schedule_id = ?1;

-- name: schedule_changed
-- Notifies other processes that schedules have changed.
UPDATE task_engine_schedule_changes SET number = number + 1 WHERE id = 1;

-- name: schedules_due
-- Schedules that are due, by the index on next_at, which has no paused or broken
-- ones. The caller reads on past those that wait for a task to end.
SELECT
    id, version, name, definition, declared, overlap, anchor, paused_at, pause_reason, error, next_at,
    last_slot, last_task_id, created_at, updated_at
FROM task_engine_schedules
WHERE next_at <= ?1
ORDER BY next_at;

-- name: schedules_next
-- When the next schedule is due after a time. One seek in the index.
SELECT min(next_at) FROM task_engine_schedules WHERE next_at > ?1;

-- name: schedule_unchanged
-- Whether a schedule has not changed since it was read. By its key.
SELECT EXISTS (SELECT 1 FROM task_engine_schedules WHERE id = ?1 AND version = ?2);

-- name: fired_slot_insert
INSERT INTO task_engine_fired_slots (schedule_id, slot, task_id, fired_at) VALUES (?1, ?2, ?3, ?4);

-- name: fired_slots_delete_old
-- Keeps the newest slots of a schedule. Two ranges of the primary key.
DELETE FROM task_engine_fired_slots
WHERE schedule_id = ?1 AND slot <= (
    SELECT slot
    FROM task_engine_fired_slots
    WHERE schedule_id = ?1
    ORDER BY slot DESC
    LIMIT 1 OFFSET ?2
);

-- name: schedule_move
-- Moves a schedule on to the next slot.
UPDATE task_engine_schedules
SET version = version + 1,
    next_at = ?2,
    last_slot = coalesce(?3, last_slot),
    last_task_id = coalesce(?4, last_task_id)
WHERE id = ?1;

-- name: schedule_event_extend
-- A range of skipped slots that goes on stays one row: the newest event is of the
-- same kind, and nothing has fired since.
UPDATE task_engine_schedule_events
SET last_slot = ?3, slots = slots + ?4, recorded_at = ?5
WHERE id = (
    SELECT id FROM task_engine_schedule_events WHERE schedule_id = ?1 ORDER BY id DESC LIMIT 1
) AND kind = ?2 AND last_slot > coalesce(
    (SELECT last_slot FROM task_engine_schedules WHERE id = ?1), -9223372036854775808
);

-- name: schedule_event_insert
INSERT INTO task_engine_schedule_events
    (schedule_id, kind, first_slot, last_slot, slots, task_id, requested_by, recorded_at)
SELECT id, ?2, ?3, ?4, ?5, ?6, ?7, ?8 FROM task_engine_schedules WHERE id = ?1;

-- name: schedule_events_delete_old
-- Keeps the newest events of a schedule. Two ranges of the index.
DELETE FROM task_engine_schedule_events
WHERE schedule_id = ?1 AND id <= (
    SELECT id FROM task_engine_schedule_events
    WHERE schedule_id = ?1
    ORDER BY id DESC
    LIMIT 1 OFFSET ?2
);

-- name: schedule_events
-- The newest events of a schedule, by the index on (schedule_id, id).
SELECT kind, first_slot, last_slot, slots, task_id, requested_by, recorded_at
FROM task_engine_schedule_events
WHERE schedule_id = ?1
ORDER BY id DESC
LIMIT ?2;

-- name: task_is_open
-- Whether a task has not ended. A retried task waits or is held again; a task that
-- retention has removed has ended. Only held attempts are read completely, and they are
-- few.
SELECT
    EXISTS (SELECT 1 FROM task_engine_waiting_tasks WHERE task_id = ?1)
    OR EXISTS (SELECT 1 FROM task_engine_created_tasks WHERE id = ?1) AND (
        (
            SELECT ends_task
            FROM task_engine_ended_executions
            WHERE task_id = ?1
            ORDER BY attempt DESC
            LIMIT 1
        ) IS NULL
        OR EXISTS (SELECT 1 FROM task_engine_held_attempts WHERE task_id = ?1)
    );

-- name: fired_slots
-- The newest slots of a schedule, by the primary key.
SELECT slot, task_id, fired_at
FROM task_engine_fired_slots
WHERE schedule_id = ?1
ORDER BY slot DESC
LIMIT ?2;
