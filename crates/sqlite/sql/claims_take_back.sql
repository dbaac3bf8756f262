-- Takes all claims of a life that is over, and of no other: a claim may have
-- committed after the first look, so this is asked again and again. Reads all
-- claims, which are as few as batches under way.
DELETE FROM task_engine_claims
WHERE instance_id = (
    SELECT id
    FROM task_engine_instances
    WHERE id = ?1 AND (stopped_at IS NOT NULL OR lost_at IS NOT NULL)
)
RETURNING claimed_at, attempts
