-- Lines of a task's log: a range of the primary key. The words in the comments
-- make it the newest ones, the last of them first.
SELECT l.attempt, l.line, l.logged_at, l.level, l.message
FROM task_engine.execution_logs l
WHERE l.task_id = $1 AND (l.attempt, l.line) > ($2::integer, $3::integer)
  AND (l.attempt, l.line) < ($4::integer, $5::integer)
ORDER BY l.attempt /* DESC */, l.line /* DESC */ LIMIT $6
