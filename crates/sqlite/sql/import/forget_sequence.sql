-- Before a new value: sqlite_sequence has no key.
DELETE FROM sqlite_sequence WHERE name = ?1
