-- The nearest task at or below each of the ids $1, and when it was created: one
-- probe of the primary key each.
SELECT c.id, c.created_at, clock_timestamp() AS now
FROM unnest($1::bigint[]) WITH ORDINALITY AS p (id, place)
LEFT JOIN LATERAL (
  SELECT n.id, n.created_at FROM task_engine.created_tasks n
  WHERE n.id <= p.id ORDER BY n.id DESC LIMIT 1
) AS c ON true
ORDER BY p.place
