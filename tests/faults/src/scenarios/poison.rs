//! Tasks that hurt their engine.

use std::time::Duration;

use task_engine::{TaskId, TaskStatus};

use crate::harness::arena::Arena;
use crate::harness::machine::Group;
use crate::history::{History, exception_of};
use crate::orders::{Deed, Duty};

/// How often a poison task is retried here.
const RETRIES: u32 = 2;

/// F2: the work is done, and its engine dies before anybody knows. It is done
/// again; both attempts are on record.
pub fn dies_before_the_record(arena: &mut Arena) {
    arena.on_usual_store();
    arena.start(&["a"]);
    let duty = Duty { ms: 5, deed: Deed::AbortAfter, attempts: Some(1) };
    arena.create_many(3, &duty);
    let history = arena.account();
    let lost = history.count("InstanceLost");
    assert!(lost >= 3, "each of them killed its engine once: {lost}");
    assert!(history.tasks.values().all(|task| task.status == TaskStatus::Stopped));
    arena.note(format!("{} crashes", arena.fleet.crashes().len()));
}

/// F28: tasks that end the process of their engine, each in its own way.
pub fn kills_its_engine(arena: &mut Arena) {
    arena.on_usual_store();
    arena.start(&["a", "b"]);
    let deeds = [Deed::Abort, Deed::Exit, Deed::Overflow];
    let bad: Vec<_> =
        deeds.map(|deed| Duty::deed(deed).task_with_retries(RETRIES)).into_iter().collect();
    let bad = arena.create(&bad);
    // Others, that have no part in it, come to their end meanwhile.
    let good = arena.create_many(100, &Duty::work(20));
    let history = arena.account();
    verdict(arena, &history, &bad, &good);
}

/// F27: a task takes all memory of a control group; the system kills the engine.
pub fn eats_all_memory(arena: &mut Arena) {
    arena.on_usual_store();
    let group = Group::new("memory");
    group.limit_memory(100 << 20);
    let mut small = arena.plan("small");
    small.around = group.around();
    arena.fleet.start(small);
    let bad = arena.create(&[Duty::deed(Deed::Eat).task_with_retries(RETRIES)]);
    let good = arena.create_many(50, &Duty::work(20));
    let history = arena.account();
    verdict(arena, &history, &bad, &good);
    arena.fleet.forget("small");
}

/// Poison has failed, with evidence, after as many crashes as its rule allows;
/// others that were in the same engine were done.
fn verdict(arena: &mut Arena, history: &History, bad: &[TaskId], good: &[TaskId]) {
    for id in bad {
        let task = &history.tasks[&id.0];
        assert_eq!(task.status, TaskStatus::Failed, "{task:?}");
        let last = task.executions.last().expect("an attempt");
        assert_eq!(exception_of(last), "InstanceLost");
        let message = last.error.as_ref().map_or("", |error| error.as_str());
        assert!(message.contains("process"), "it says which process: {message}");
        assert_eq!(task.executions.len(), RETRIES as usize + 1);
    }
    for id in good {
        assert_eq!(history.tasks[&id.0].status, TaskStatus::Stopped);
    }
    let shared = good.iter().filter(|id| history.tasks[&id.0].executions.len() > 1).count();
    arena.note(format!(
        "{} crashes; {} poison tasks failed after {} tries each; {shared} of {} others had to be tried again",
        arena.fleet.crashes().len(),
        bad.len(),
        RETRIES + 1,
        good.len()
    ));
}

/// F29: very many panics, also in destructors.
pub fn panics(arena: &mut Arena) {
    arena.on_usual_store();
    arena.start(&["a"]);
    let count = if arena.soak { 5000 } else { 300 };
    let panics = Duty::deed(Deed::Panic).task_with_retries(1);
    let twice = Duty::deed(Deed::PanicTwice).task_with_retries(1);
    arena.create(&vec![panics; count]);
    arena.create(&vec![twice; count / 3]);
    let good = arena.create_many(100, &Duty::work(5));
    let history = arena.account();
    assert!(arena.fleet.crashes().is_empty(), "the engine lives: {:?}", arena.fleet.crashes());
    assert_eq!(history.count("Panic"), (count + count / 3) * 2);
    assert!(good.iter().all(|id| history.tasks[&id.0].status == TaskStatus::Stopped));
    arena.note(format!("{} panics, no crash", history.count("Panic")));
}

/// F30: more tasks that block their threads, asleep and busy, than there are
/// cores. The engine is never given up, and another queue goes on.
pub fn blocks_every_thread(arena: &mut Arena) {
    arena.on_usual_store();
    let mut plan = arena.plan("a");
    plan.order.workers = 8;
    arena.fleet.start(plan);
    arena.until_alive(&["a"]);
    let blocks = Duty { ms: 4000, deed: Deed::Block, attempts: None };
    let spins = Duty { ms: 4000, deed: Deed::Spin, attempts: None };
    arena.create_many(2, &blocks);
    arena.create_many(2, &spins);
    arena.until("threads are blocked", || arena.begun() >= 2);
    let store = arena.store();
    let mut oldest = Duration::ZERO;
    arena.until("they end", || {
        let rows = arena.wait(store.instances(Some("a"))).expect("a list");
        oldest = oldest.max(rows.iter().map(|row| row.heartbeat_age).max().unwrap_or_default());
        assert!(rows.iter().any(|row| row.is_alive()), "given up: {rows:?}");
        arena.done() == 4
    });
    arena.note(format!("the oldest heartbeat seen was {} ms old", oldest.as_millis()));
    let history = arena.account();
    assert_eq!(history.count("InstanceLost"), 0, "nobody was given up");
}

/// F34: very many tasks fail together; their retries are spread by the rule.
pub fn retry_storm(arena: &mut Arena) {
    use task_engine::RetryOverride;
    arena.on_usual_store();
    let count = if arena.soak { 100_000 } else { 3000 };
    let rule = RetryOverride::default().maximum(1).first_delay(Duration::from_secs(20)).jitter(1.0);
    let duty = Duty { ms: 0, deed: Deed::Fail, attempts: Some(1) };
    for _ in 0..count / 1000 {
        arena.create(&vec![duty.task().retry(rule); 1000]);
    }
    let mut plan = arena.plan("a");
    plan.order.workers = 50;
    plan.order.lease_ms = 10_000;
    arena.fleet.start(plan);
    let window = arena.window();
    let history = arena.account();
    let used = window.close();
    // How long each was told to wait, in twenty equal parts of the longest wait.
    let mut bins = [0_usize; 20];
    for (_, execution) in history.executions() {
        if let Some(retry_at) = execution.retry_at {
            let wait = retry_at.duration_since(execution.stopped_at).as_secs_f64();
            bins[((wait / 20.0 * 20.0) as usize).min(19)] += 1;
        }
    }
    let (most, mean) = (bins.iter().max().copied().unwrap_or(0), count / 20);
    assert!(most <= mean * 3, "they come back together: {bins:?}");
    arena.note(format!(
        "{count} retries spread over 20 s, at the most {:.1} times the mean in one; {used}",
        most as f64 / mean as f64
    ));
}
