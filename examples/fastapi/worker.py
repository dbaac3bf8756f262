"""The tasks of the shop."""

from task_engine import AsyncContext, serve, task


@task("fulfil_order", retries=5, timeout="30s")
async def fulfil_order(ctx: AsyncContext, order_id: int, item: str) -> str:
    receipt = await ctx.step("charge", lambda: f"receipt {order_id}")
    approval = await ctx.wait_for("approved", "7d")
    ctx.log(f"approved by {approval['by']}, {receipt}")
    return await ctx.step("ship", lambda: f"shipped the {item}")


if __name__ == "__main__":
    serve()
