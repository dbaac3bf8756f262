-- The engine holds the batch from here on. The id is the engine's own choice.
INSERT INTO task_engine_claims (id, instance_id, claimed_at, attempts) VALUES (?1, ?2, ?3, ?4)
