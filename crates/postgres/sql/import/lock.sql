-- Who creates takes an id while it holds a weaker lock: from here on, nobody does.
LOCK TABLE task_engine.created_tasks, task_engine.instances, task_engine.schedules
  IN SHARE ROW EXCLUSIVE MODE
