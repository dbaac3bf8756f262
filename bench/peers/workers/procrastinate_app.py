import os

from procrastinate import App, PsycopgConnector

app = App(connector=PsycopgConnector(conninfo=os.environ["DATABASE_URL"]))


@app.task(name="noop")
async def noop():
    return None
