//! Servers that crash, refuse, or are replaced.

use task_engine_conformance::TestServer;

use crate::harness::arena::Arena;
use crate::orders::Duty;

/// F14: the server crashes under load, in two ways.
pub fn crash(arena: &mut Arena) {
    let server = TestServer::start();
    arena.on_server(&server);
    arena.start(&["a", "b"]);
    arena.produce(600, 5, 20, Duty::work(5));
    let window = arena.window();
    for crash in 1..=4 {
        arena.until("work goes on", || arena.done() >= crash * 80);
        if arena.chance.bool() || crash == 1 {
            server.stop_immediate();
        } else {
            server.kill();
        }
        arena.endure_some(0..1500);
        server.start_again();
        arena.remember();
    }
    let used = window.close();
    arena.note(format!("4 crashes; {used}"));
    arena.account();
}
