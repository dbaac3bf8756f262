-- How far a step of a search goes: the lowest of the newest $3 ids of its base,
-- and how many there are. In a statement before the step itself, which looks at
-- all that is above: whatever moves in between, nothing is passed over that was
-- there all the time. Each place of the base brings no more than $3 by its key, so
-- that the crowd of one is not read for the sake of another.
SELECT min(s.id) AS lowest, count(*) AS rows, clock_timestamp() AS now
FROM (SELECT b.id FROM (/* base */) AS b ORDER BY b.id DESC LIMIT $3) AS s
