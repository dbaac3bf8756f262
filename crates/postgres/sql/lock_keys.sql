-- Of tasks that may be removed, those that have no unique key or whose key could
-- be locked. Keys before tasks, as those do who create; and not waiting for
-- them: a key that somebody is about to use is left for later.
WITH keyed AS MATERIALIZED (
  SELECT c.id, c.task_class, c.context ->> 'unique_key' AS unique_key
  FROM task_engine.created_tasks c
  WHERE c.id = ANY ($1) AND c.context ? 'unique_key'
), held AS MATERIALIZED (
  SELECT k.id FROM keyed k
  JOIN task_engine.unique_tasks u
    ON u.task_class = k.task_class AND u.unique_key = k.unique_key AND u.task_id = k.id
), locked AS MATERIALIZED (
  SELECT k.id FROM keyed k
  JOIN task_engine.unique_tasks u
    ON u.task_class = k.task_class AND u.unique_key = k.unique_key AND u.task_id = k.id
  FOR UPDATE OF u SKIP LOCKED
)
SELECT a.id FROM unnest($1::bigint[]) AS a(id)
WHERE a.id NOT IN (SELECT id FROM held) OR a.id IN (SELECT id FROM locked)
