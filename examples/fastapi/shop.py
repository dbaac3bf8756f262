"""An order and its task are created in one transaction: both are there, or neither."""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import psycopg
from fastapi import FastAPI, HTTPException
from pydantic import BaseModel

from task_engine import create_async, signal_by_key_async

DATABASE_URL = os.environ["TASK_ENGINE_DATABASE_URL"]


class NewOrder(BaseModel):
    item: str
    cents: int


@asynccontextmanager
async def lifespan(_: FastAPI) -> AsyncIterator[None]:
    async with await psycopg.AsyncConnection.connect(DATABASE_URL) as db:
        await db.execute(
            "CREATE TABLE IF NOT EXISTS paid_orders (id bigint GENERATED ALWAYS AS IDENTITY "
            "PRIMARY KEY, item text NOT NULL, cents bigint NOT NULL CHECK (cents > 0))"
        )
    yield


app = FastAPI(lifespan=lifespan)


@app.post("/orders", status_code=201)
async def place_order(order: NewOrder) -> dict[str, int]:
    async with await psycopg.AsyncConnection.connect(DATABASE_URL) as db:
        # The task first, only to show that it is rolled back with an order that is refused.
        cursor = await db.execute("SELECT nextval(pg_get_serial_sequence('paid_orders', 'id'))")
        (order_id,) = await cursor.fetchone() or (0,)
        task_id = await create_async(
            db, "fulfil_order", {"order_id": order_id, "item": order.item}, key=f"order {order_id}"
        )
        try:
            await db.execute(
                "INSERT INTO paid_orders OVERRIDING SYSTEM VALUE VALUES (%s, %s, %s)",
                (order_id, order.item, order.cents),
            )
        except psycopg.errors.CheckViolation:
            await db.rollback()
            raise HTTPException(422, "an order costs something") from None
    return {"order_id": order_id, "task_id": task_id}


@app.post("/orders/{order_id}/approval")
async def approve(order_id: int, by: str) -> str:
    async with await psycopg.AsyncConnection.connect(DATABASE_URL) as db:
        return await signal_by_key_async(
            db, "fulfil_order", f"order {order_id}", "approved", {"by": by}
        )
