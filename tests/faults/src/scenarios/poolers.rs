//! A pooler between engines and server.

use task_engine_test_harness::{TestPooler, TestServer};

use crate::commands::TaskSpec;
use crate::harness::context::TestContext;

/// F17: all connections use a pooler in transaction mode with two server connections:
/// prepared statements, settings and LISTEN do not persist. Engines are killed in the
/// middle of their transactions.
pub fn transaction_pooler(ctx: &mut TestContext) {
    let server = TestServer::start();
    ctx.use_server(&server);
    let pooler = TestPooler::start(&server, "transaction", 2);
    ctx.database = pooler.through(&ctx.database);
    ctx.start(&["a", "b"]);
    ctx.produce(300, 5, 20, TaskSpec::work(5));
    for (name, done) in [("a", 40), ("b", 120)] {
        ctx.wait_until("work is done", || ctx.finished() > done);
        ctx.engines.kill(name);
    }
    ctx.settle_and_check();
    drop(pooler);
}

/// F17: all connections use a pooler in session mode.
pub fn session_pooler(ctx: &mut TestContext) {
    let server = TestServer::start();
    ctx.use_server(&server);
    let pooler = TestPooler::start(&server, "session", 40);
    ctx.database = pooler.through(&ctx.database);
    ctx.start(&["a", "b"]);
    ctx.produce(200, 5, 20, TaskSpec::work(5));
    ctx.settle_and_check();
    drop(pooler);
}
