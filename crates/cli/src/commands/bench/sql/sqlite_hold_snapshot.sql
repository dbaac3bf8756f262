-- A reader that keeps the log from being written back beyond what it sees.
BEGIN;
SELECT count(*) FROM sqlite_schema;
