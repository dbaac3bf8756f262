-- Limits: how many attempts run at a time and how often they start, for each key. A store
-- without limits has no row here.

-- The limits and their keys, for a due task that waits in a lane of its own: JSON, like
-- [[3, "acme"], [5, ""]]. Its queue begins with U+001F, so that claims of tasks without
-- limits do not see it. Null for all other tasks.
ALTER TABLE task_engine_waiting_tasks ADD COLUMN lane_key TEXT;

-- One range for each lane, in the order of time and id. Tasks without a lane key have no row
-- in this index.
CREATE INDEX task_engine_waiting_limited_lanes
    ON task_engine_waiting_tasks (queue, task_class, priority, lane_key, due_at)
    WHERE lane_key IS NOT NULL;

-- Limits. AUTOINCREMENT: a limit that is removed and added again has another id.
CREATE TABLE task_engine_limits (
    id          INTEGER PRIMARY KEY AUTOINCREMENT
        CONSTRAINT an_id_of_a_limit_has_32_bits CHECK (id BETWEEN 1 AND 2147483647),
    name        TEXT NOT NULL UNIQUE
        CONSTRAINT a_limit_has_a_name_of_1_to_200_bytes
        CHECK (length(CAST(name AS BLOB)) BETWEEN 1 AND 200),
    -- class, queue, or named: the tasks that name the limit.
    target      TEXT NOT NULL
        CONSTRAINT a_target_is_class_queue_or_named
        CHECK (target = 'class' OR target = 'queue' OR target = 'named'),
    -- The class or the queue.
    target_name TEXT
        CONSTRAINT a_class_or_queue_has_a_name CHECK ((target_name IS NULL) = (target = 'named')),
    -- The options that engines declare, and those that an operator has set, which apply. JSON.
    declared    TEXT CONSTRAINT declared_options_are_json CHECK (json_valid(declared)),
    operator    TEXT CONSTRAINT options_of_operators_are_json CHECK (json_valid(operator)),
    changed_at  INTEGER NOT NULL,
    CONSTRAINT a_limit_is_declared_or_set CHECK (coalesce(declared, operator) IS NOT NULL)
) STRICT;

-- Classes that have tasks that name limits in their context. They stay after their tasks.
CREATE TABLE task_engine_classes_naming_limits (
    task_class TEXT PRIMARY KEY
) STRICT, WITHOUT ROWID;

-- Another number after every change of the two tables above: claims cache them. A random
-- number and not a counter, because the number of a change that was rolled back must not
-- come again.
CREATE TABLE task_engine_limits_version (
    id     INTEGER PRIMARY KEY CHECK (id = 1),
    number INTEGER NOT NULL
) STRICT;
INSERT INTO task_engine_limits_version (id, number) VALUES (1, 0);

-- The state of a key: the attempts that hold it, and how many have started. An attempt that
-- has ended does not count, and is left out by the next claim.
CREATE TABLE task_engine_limit_keys (
    limit_id   INTEGER NOT NULL,
    key        TEXT NOT NULL,
    total      INTEGER NOT NULL,
    written_at INTEGER NOT NULL,
    -- [[task_id, attempt], …]
    holders    TEXT NOT NULL
        CONSTRAINT holders_are_a_json_array
        CHECK (CASE WHEN json_valid(holders) THEN json_type(holders) = 'array' ELSE 0 END),
    PRIMARY KEY (limit_id, key)
) STRICT, WITHOUT ROWID;

-- Starts of a key with a rate: one row for each claim. Only as many as the rate counts are
-- kept.
CREATE TABLE task_engine_limit_starts (
    limit_id      INTEGER NOT NULL,
    key           TEXT NOT NULL,
    -- The number of the last start of the claim.
    total         INTEGER NOT NULL,
    -- Its attempts have started by then, or were released.
    started_until INTEGER NOT NULL,
    PRIMARY KEY (limit_id, key, total)
) STRICT, WITHOUT ROWID;

-- Keys that start no attempt until a time.
CREATE TABLE task_engine_closed_keys (
    limit_id INTEGER NOT NULL,
    key      TEXT NOT NULL,
    until    INTEGER NOT NULL,
    reason   TEXT NOT NULL,
    PRIMARY KEY (limit_id, key)
) STRICT, WITHOUT ROWID;

-- A task that an SQL client creates may name limits that exist. The other trigger creates it,
-- and reports a context that is no JSON.
CREATE TRIGGER task_engine_tasks_insert_limits INSTEAD OF INSERT ON task_engine_tasks
WHEN CASE WHEN json_valid(NEW.context) THEN json_type(NEW.context, '$.limits') = 'object' ELSE 0 END
BEGIN
    SELECT RAISE(ABORT, 'the context names a limit that does not exist')
    FROM json_each(NEW.context, '$.limits') AS named
    WHERE NOT EXISTS (SELECT 1 FROM task_engine_limits WHERE name = named.key);

    SELECT RAISE(ABORT, 'the context names more than 3 limits')
    WHERE (SELECT count(*) FROM json_each(NEW.context, '$.limits')) > 3;

    UPDATE task_engine_limits_version
    SET number = random()
    WHERE NOT EXISTS (
        SELECT 1 FROM task_engine_classes_naming_limits WHERE task_class = NEW.task_class
    );

    INSERT INTO task_engine_classes_naming_limits (task_class)
    SELECT NEW.task_class
    WHERE NEW.task_class <> ''
    ON CONFLICT DO NOTHING;
END;
