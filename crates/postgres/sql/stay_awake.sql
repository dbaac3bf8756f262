-- Under load nobody needs to wake this engine.
DELETE FROM task_engine.sleepers WHERE instance_id = $1
