-- Under load nobody needs to wake this claimer.
DELETE FROM task_engine.sleepers WHERE instance_id = $1 AND claimer = $2
