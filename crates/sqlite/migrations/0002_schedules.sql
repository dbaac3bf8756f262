-- Regular tasks: a slot fires once, however many processes share this file.

-- One row for each schedule. Every write and every processed slot make a new version; a
-- writer that has read an older one changes nothing.
CREATE TABLE task_engine_schedules (
    id           INTEGER PRIMARY KEY AUTOINCREMENT,
    name         TEXT NOT NULL UNIQUE
        CONSTRAINT a_schedule_has_a_name CHECK (name <> ''),
    version      INTEGER NOT NULL DEFAULT 1,
    definition   TEXT NOT NULL
        CONSTRAINT a_schedule_has_at_most_1_mebibyte CHECK (length(CAST(definition AS BLOB)) <= 1048576),
    -- What an application declared last.
    declared     TEXT,
    overlap      TEXT NOT NULL
        CONSTRAINT overlap_is_allowed_skipped_or_waited_for CHECK (overlap IN ('allow', 'skip', 'wait')),
    -- Where intervals are counted from.
    anchor       INTEGER NOT NULL,
    paused_at    INTEGER,
    pause_reason TEXT,
    -- Why it cannot fire.
    error        TEXT,
    -- The next slot that is not processed yet. Null: there is none.
    next_at      INTEGER,
    last_slot    INTEGER,
    last_task_id INTEGER,
    created_at   INTEGER NOT NULL,
    updated_at   INTEGER NOT NULL,
    CONSTRAINT a_schedule_that_is_paused_or_has_an_error_awaits_no_slot
        CHECK (next_at IS NULL OR (paused_at IS NULL AND error IS NULL)),
    CONSTRAINT no_slot_is_awaited_that_has_fired CHECK (next_at > last_slot)
) STRICT;

-- However many schedules there are, only those that are due are read.
CREATE INDEX task_engine_schedules_by_next_at
    ON task_engine_schedules (next_at) WHERE next_at IS NOT NULL;

-- One row for each fired slot, written with its task. The primary key makes sure that a
-- slot fires once.
CREATE TABLE task_engine_fired_slots (
    schedule_id INTEGER NOT NULL,
    slot        INTEGER NOT NULL,
    task_id     INTEGER NOT NULL,
    fired_at    INTEGER NOT NULL,
    PRIMARY KEY (schedule_id, slot)
) STRICT, WITHOUT ROWID;

CREATE INDEX task_engine_fired_slots_by_task ON task_engine_fired_slots (task_id);

-- Other events of a schedule: skipped slots, one row for each range, and tasks that
-- were created manually. The newest 100 of a schedule are kept.
CREATE TABLE task_engine_schedule_events (
    id           INTEGER PRIMARY KEY AUTOINCREMENT,
    schedule_id  INTEGER NOT NULL,
    kind         TEXT NOT NULL,
    first_slot   INTEGER,
    last_slot    INTEGER,
    slots        INTEGER NOT NULL CHECK (slots >= 0),
    -- It may have been removed since.
    task_id      INTEGER,
    requested_by TEXT,
    recorded_at  INTEGER NOT NULL,
    CONSTRAINT an_event_of_a_schedule_is_of_a_known_kind
        CHECK (CASE WHEN kind = 'manual' THEN task_id IS NOT NULL AND first_slot IS NULL AND last_slot IS NULL
            ELSE kind IN ('skipped_missed', 'skipped_overlap') AND task_id IS NULL
                AND first_slot IS NOT NULL AND last_slot IS NOT NULL AND first_slot <= last_slot END)
) STRICT;
CREATE INDEX task_engine_schedule_events_by_schedule ON task_engine_schedule_events (schedule_id, id);

-- How often schedules were changed; firing is no change. A listener sees a change by
-- the higher number.
CREATE TABLE task_engine_schedule_changes (
    id     INTEGER PRIMARY KEY CHECK (id = 1),
    number INTEGER NOT NULL
) STRICT;
INSERT INTO task_engine_schedule_changes (id, number) VALUES (1, 0);
