import os

from celery import Celery

app = Celery("bench", broker=os.environ["REDIS_URL"])
app.conf.task_ignore_result = True
app.conf.worker_prefetch_multiplier = 100
app.conf.worker_hijack_root_logger = False


@app.task
def noop():
    return None
