c.task_parameters, c.context
