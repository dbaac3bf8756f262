-- The first step of firing: takes those schedules that still are what they were
-- when they were seen, and waits for nobody. Whoever holds one is firing or
-- changing it, so that it is no longer what was seen. Versions are looked at
-- again once a row is locked, should it have changed since the snapshot.
SELECT s.id FROM task_engine.schedules s
JOIN unnest($1::bigint[], $2::bigint[], $3::bigint[]) AS seen(id, version, after)
  ON seen.id = s.id AND seen.version = s.version
WHERE s.id = ANY ($1) AND NOT (seen.after IS NOT NULL AND task_engine.is_open(seen.after))
FOR UPDATE OF s SKIP LOCKED
