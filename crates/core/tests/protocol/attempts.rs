//! One task, its attempts, and engines that are slow, cut off, dead, or declared
//! so. An engine that is suspended is one that does nothing for as long as it
//! pleases: any of them may, at any moment.

use std::collections::BTreeSet;

use stateright::{Checker, HasDiscoveries, Model, Property};

const ENGINES: usize = 2;
/// How many ticks of the database's clock a heartbeat is good for.
const LEASE: u8 = 1;
const RETRIES: u8 = 1;
const ATTEMPTS_MAX: u8 = 3;
const LIVES_MAX: usize = 3;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Rule {
    Whole,
    /// An attempt may end a second time.
    NoFence,
    /// Leases are judged by the clock of whoever looks, which is a tick ahead.
    ClockOfTheObserver,
    /// Claims are taken back from whoever is not heard of, without a lease.
    NoLease,
    /// Claims whose answer was lost are left alone.
    LostAnswersStay,
    /// A failed attempt is retried although somebody wants the task cancelled.
    WishesForgotten,
}

#[derive(Debug)]
struct Protocol(Rule);

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct World {
    // The database.
    lives: Vec<Life>,
    /// The attempt that waits, and how many retries have been used.
    waiting: Option<(u8, u8)>,
    claims: BTreeSet<Claim>,
    /// In the order in which they were written.
    ended: Vec<(u8, NextState)>,
    /// The attempt that somebody wants cancelled.
    wish: Option<u8>,
    // The world outside.
    engines: [Engine; ENGINES],
    /// Records on their way: they may arrive late, and twice.
    on_the_way: BTreeSet<Record>,
    /// An engine that lives holds something that nobody will ever ask it about.
    forgotten: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Life {
    over: bool,
    /// Ticks since its last heartbeat.
    age: u8,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Claim {
    life: usize,
    attempt: u8,
    retries: u8,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Record {
    claim: Claim,
    success: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum NextState {
    Wait,
    Stopped,
    Failed,
    Cancelled,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
struct Engine {
    life: Option<usize>,
    /// What its worker works on.
    works_on: Option<Claim>,
    /// What it has done and not heard of as recorded.
    unrecorded: Option<Claim>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Event {
    Tick,
    Register(usize),
    Claim(usize),
    /// The claim commits; its engine never hears of it.
    ClaimUnheard(usize),
    Finish(usize, bool),
    Arrive(Record),
    /// It arrives, and its sender, who has not heard so, sends it again.
    ArriveUnheard(Record),
    Heartbeat(usize),
    Die(usize),
    DeclareLost(usize),
    Recover(Claim),
    Cancel,
}

impl Model for Protocol {
    type State = World;
    type Action = Event;

    fn init_states(&self) -> Vec<World> {
        vec![World {
            lives: Vec::new(),
            waiting: Some((1, 0)),
            claims: BTreeSet::new(),
            ended: Vec::new(),
            wish: None,
            engines: Default::default(),
            on_the_way: BTreeSet::new(),
            forgotten: false,
        }]
    }

    fn actions(&self, world: &World, events: &mut Vec<Event>) {
        events.push(Event::Tick);
        for (n, engine) in world.engines.iter().enumerate() {
            let Some(_) = engine.life else {
                events.push(Event::Register(n));
                continue;
            };
            events.extend([Event::Heartbeat(n), Event::Die(n)]);
            if engine.works_on.is_some() {
                events.extend([Event::Finish(n, true), Event::Finish(n, false)]);
            } else if world.waiting.is_some() && engine.unrecorded.is_none() {
                events.extend([Event::Claim(n), Event::ClaimUnheard(n)]);
            }
        }
        for record in &world.on_the_way {
            events.extend([Event::Arrive(*record), Event::ArriveUnheard(*record)]);
        }
        for (life, row) in world.lives.iter().enumerate() {
            if !row.over && self.looks_dead(*row) {
                events.push(Event::DeclareLost(life));
            }
        }
        for claim in &world.claims {
            if world.lives[claim.life].over || self.0 == Rule::NoLease {
                events.push(Event::Recover(*claim));
            }
        }
        events.push(Event::Cancel);
    }

    fn next_state(&self, last: &World, event: Event) -> Option<World> {
        let mut world = last.clone();
        match event {
            Event::Tick => {
                for life in &mut world.lives {
                    life.age = (life.age + 1).min(LEASE + 1);
                }
            }
            Event::Register(n) => {
                world.engines[n].life = Some(world.lives.len());
                world.lives.push(Life { over: false, age: 0 });
            }
            Event::Claim(n) | Event::ClaimUnheard(n) => {
                let life = world.engines[n].life?;
                if world.lives[life].over {
                    return None;
                }
                let (attempt, retries) = world.waiting.take()?;
                let claim = Claim { life, attempt, retries };
                world.claims.insert(claim);
                if event == Event::Claim(n) {
                    world.engines[n].works_on = Some(claim);
                }
            }
            Event::Finish(n, success) => {
                let claim = world.engines[n].works_on.take()?;
                world.engines[n].unrecorded = Some(claim);
                world.on_the_way.insert(Record { claim, success });
            }
            Event::Arrive(record) | Event::ArriveUnheard(record) => {
                let next = match (record.success, record.claim.retries < RETRIES) {
                    (true, _) => NextState::Stopped,
                    (false, true) => NextState::Wait,
                    (false, false) => NextState::Failed,
                };
                world.end(record.claim, next, 1, self.0);
                if event == Event::Arrive(record) {
                    world.on_the_way.remove(&record);
                    for engine in &mut world.engines {
                        engine.unrecorded.take_if(|claim| *claim == record.claim);
                    }
                }
            }
            Event::Heartbeat(n) => {
                let life = world.engines[n].life?;
                if world.lives[life].over {
                    // It fences itself: its code is told to end, and it begins anew.
                    world.engines[n] = Engine::default();
                    return Some(world);
                }
                world.lives[life].age = 0;
                let known = [world.engines[n].works_on, world.engines[n].unrecorded];
                let unknown: Vec<Claim> = world.held().filter(|claim| claim.life == life).collect();
                for claim in unknown.into_iter().filter(|claim| !known.contains(&Some(*claim))) {
                    if self.0 == Rule::LostAnswersStay {
                        world.forgotten = true;
                        continue;
                    }
                    world.end(claim, NextState::Wait, 0, self.0);
                    world.claims.remove(&claim);
                }
            }
            Event::Die(n) => world.engines[n] = Engine::default(),
            Event::DeclareLost(life) => world.lives[life].over = true,
            Event::Recover(claim) => {
                world.claims.remove(&claim);
                let next =
                    if claim.retries < RETRIES { NextState::Wait } else { NextState::Failed };
                world.end(claim, next, 1, self.0);
            }
            Event::Cancel => {
                if let Some((attempt, _)) = world.waiting.take() {
                    world.ended.push((attempt, NextState::Cancelled));
                } else {
                    let held = world.held().next()?;
                    world.wish = Some(held.attempt);
                }
            }
        }
        (world != *last).then_some(world)
    }

    fn within_boundary(&self, world: &World) -> bool {
        world.lives.len() <= LIVES_MAX
            && world.waiting.is_none_or(|(attempt, _)| attempt <= ATTEMPTS_MAX)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always("a task is somewhere", |_, world: &World| {
                let over = world.ended.iter().any(|(_, next)| *next != NextState::Wait);
                let places = [world.waiting.is_some(), world.held().next().is_some(), over];
                places.into_iter().filter(|here| *here).count() == 1
            }),
            Property::always("an attempt ends once", |_, world: &World| {
                let attempts: BTreeSet<_> =
                    world.ended.iter().map(|(attempt, _)| attempt).collect();
                attempts.len() == world.ended.len()
            }),
            Property::always("one attempt at a time", |_, world: &World| {
                let alive = |claim: &Claim| world.lives[claim.life].age <= LEASE;
                let at_work: Vec<_> =
                    world.engines.iter().filter_map(|engine| engine.works_on).collect();
                at_work.len() < 2 || !at_work.iter().all(alive)
            }),
            Property::always("a task is held once", |_, world: &World| world.held().count() < 2),
            Property::always(
                "an engine knows what it holds when its heart has beaten",
                |_, world: &World| !world.forgotten,
            ),
            Property::always("a wish is never forgotten", |_, world: &World| {
                !world
                    .ended
                    .iter()
                    .any(|ended| Some(*ended) == world.wish.map(|w| (w, NextState::Wait)))
            }),
            Property::sometimes("it does its work", |_, world: &World| {
                world.ended.last().is_some_and(|(_, next)| *next == NextState::Stopped)
            }),
            Property::sometimes("it is given up", |_, world: &World| {
                world.ended.last().is_some_and(|(_, next)| *next == NextState::Failed)
            }),
            Property::sometimes("it is cancelled while it runs", |_, world: &World| {
                world.wish.is_some_and(|wish| world.ended.contains(&(wish, NextState::Cancelled)))
            }),
        ]
    }
}

impl Protocol {
    fn looks_dead(&self, life: Life) -> bool {
        match self.0 {
            Rule::ClockOfTheObserver => life.age + 1 > LEASE,
            _ => life.age > LEASE,
        }
    }
}

impl World {
    /// Claimed, and not ended.
    fn held(&self) -> impl Iterator<Item = Claim> {
        let ended = |claim: &Claim| self.ended.iter().any(|(attempt, _)| *attempt == claim.attempt);
        self.claims.iter().copied().filter(move |claim| !ended(claim))
    }

    /// The insert that is the fence: whoever comes second changes nothing.
    fn end(&mut self, claim: Claim, next: NextState, costs: u8, rule: Rule) {
        let ended = self.ended.iter().any(|(attempt, _)| *attempt == claim.attempt);
        if ended && rule != Rule::NoFence {
            return;
        }
        let wished = self.wish == Some(claim.attempt) && rule != Rule::WishesForgotten;
        let next = if next == NextState::Wait && wished { NextState::Cancelled } else { next };
        if next != NextState::Wait {
            self.ended.push((claim.attempt, next));
            return;
        }
        self.ended.push((claim.attempt, next));
        self.waiting = Some((claim.attempt + 1, claim.retries + costs));
    }
}

#[test]
fn every_order_of_events_keeps_the_promises() {
    let checked = Protocol(Rule::Whole).checker().threads(2).spawn_bfs().join();
    checked.assert_properties();
    assert!(checked.unique_state_count() > 10_000, "{}", checked.unique_state_count());
}

/// Each rule is there for a promise: without it, some order of events breaks it.
#[test]
fn without_any_of_its_rules_a_promise_breaks() {
    for (rule, promise) in [
        (Rule::NoFence, "an attempt ends once"),
        (Rule::ClockOfTheObserver, "one attempt at a time"),
        (Rule::NoLease, "one attempt at a time"),
        (Rule::LostAnswersStay, "an engine knows what it holds when its heart has beaten"),
        (Rule::WishesForgotten, "a wish is never forgotten"),
    ] {
        let found = HasDiscoveries::AnyOf([promise].into());
        let checked = Protocol(rule).checker().threads(2).finish_when(found).spawn_bfs().join();
        assert!(checked.discovery(promise).is_some(), "{rule:?} does not break: {promise}");
    }
}
