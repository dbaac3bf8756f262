-- Which of these claims are still there; they stay until the end of the
-- transaction. A claim that is gone was taken back, its attempts have ended, and
-- retention may have removed their tasks: nothing may be written about those.
SELECT id FROM task_engine.claims WHERE id = ANY ($1::bigint[]) ORDER BY id FOR KEY SHARE
