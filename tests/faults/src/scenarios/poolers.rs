//! A pooler between engines and server.

use task_engine_conformance::{TestPooler, TestServer};

use crate::harness::arena::Arena;
use crate::orders::Duty;

/// F17: everything goes through a pooler that has two connections for all, and
/// gives each transaction one of them: it forgets prepared statements, settings
/// and who listens. Engines are killed in the middle of their transactions.
pub fn transaction_pooler(arena: &mut Arena) {
    let server = TestServer::start();
    arena.on_server(&server);
    let pooler = TestPooler::start(&server, "transaction", 2);
    arena.database = pooler.through(&arena.database);
    arena.start(&["a", "b"]);
    arena.produce(300, 5, 20, Duty::work(5));
    for (name, done) in [("a", 40), ("b", 120)] {
        arena.until("work is done", || arena.done() > done);
        arena.fleet.kill(name);
    }
    arena.account();
    drop(pooler);
}

/// F17: everything goes through a pooler that gives each client a connection of
/// its own.
pub fn session_pooler(arena: &mut Arena) {
    let server = TestServer::start();
    arena.on_server(&server);
    let pooler = TestPooler::start(&server, "session", 40);
    arena.database = pooler.through(&arena.database);
    arena.start(&["a", "b"]);
    arena.produce(200, 5, 20, Duty::work(5));
    arena.account();
    drop(pooler);
}
