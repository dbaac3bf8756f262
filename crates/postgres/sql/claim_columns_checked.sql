-- For a claim that has failed because of a row: a value that cannot be read is
-- replaced, and the last column says why.
  task_engine.readable(c.task_parameters), task_engine.readable(c.context),
  coalesce(
    'its parameters cannot be read: ' || task_engine.unreadable(c.task_parameters),
    'its context cannot be read: ' || task_engine.unreadable(c.context))
