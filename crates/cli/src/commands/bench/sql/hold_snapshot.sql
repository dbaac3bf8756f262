-- A transaction that sees the database as it is now, for as long as it is open:
-- a report, a backup, or somebody's forgotten session.
SET idle_in_transaction_session_timeout = 0;
BEGIN ISOLATION LEVEL REPEATABLE READ;
SELECT txid_current_snapshot();
