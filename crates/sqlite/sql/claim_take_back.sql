-- Takes one claim from its holder; whoever gets the row ends its attempts.
DELETE FROM task_engine_claims
WHERE id = ?1 AND instance_id = ?2
RETURNING claimed_at, attempts
