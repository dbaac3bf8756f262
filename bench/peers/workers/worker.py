import os

from task_engine import serve, task


@task("noop")
async def noop(ctx):
    return None


if __name__ == "__main__":
    serve(concurrency=int(os.environ["CONCURRENCY"]))
