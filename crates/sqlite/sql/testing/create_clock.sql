-- Not among the migrations: production has no such table.
CREATE TABLE IF NOT EXISTS testing_clock_of_task_engine (
    id    INTEGER PRIMARY KEY CHECK (id = 1),
    ahead INTEGER NOT NULL
) STRICT;
