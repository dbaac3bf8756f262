-- How far a step of a search goes: the lowest of the newest ?3 ids of its base,
-- and how many there are.
SELECT min(id), count(*)
FROM (SELECT id FROM (/* base */) ORDER BY id DESC LIMIT ?3)
