//! One task, its attempts, and engines that are slow, disconnected, dead, or
//! declared lost. Any engine may be suspended at any moment.

use std::collections::BTreeSet;

use stateright::{Checker, HasDiscoveries, Model, Property};

const ENGINES: usize = 2;
/// The lease in ticks of the database clock.
const LEASE: u8 = 1;
const RETRIES: u8 = 1;
const ATTEMPTS_MAX: u8 = 3;
const SESSIONS_MAX: usize = 3;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Rule {
    Complete,
    /// An attempt may end a second time.
    NoFence,
    /// Leases are checked by the clock of the observer, which is a tick ahead.
    ObserverClock,
    /// Claims are reclaimed without a lease.
    NoLease,
    /// Claims whose reply was lost are not released.
    LostRepliesIgnored,
    /// A failed attempt is retried in spite of a cancel request.
    CancelRequestsIgnored,
}

#[derive(Debug)]
struct Protocol(Rule);

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct State {
    // The database.
    sessions: Vec<Session>,
    /// The attempt that waits, and how many retries have been used.
    waiting: Option<(u8, u8)>,
    claims: BTreeSet<Claim>,
    /// In the order in which they were written.
    ended: Vec<(u8, NextState)>,
    /// The attempt that is to be cancelled.
    cancel_request: Option<u8>,
    // Outside of the database.
    engines: [Engine; ENGINES],
    /// Records in flight: they may arrive late, and twice.
    in_flight: BTreeSet<Record>,
    /// A live engine holds a claim that it does not know.
    claim_ignored: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Session {
    ended: bool,
    /// Ticks since its last heartbeat.
    age: u8,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Claim {
    session: usize,
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
    session: Option<usize>,
    /// The attempt that its worker runs.
    running: Option<Claim>,
    /// Ended, but not confirmed as recorded.
    unrecorded: Option<Claim>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Event {
    Tick,
    Register(usize),
    Claim(usize),
    /// The claim commits, but its reply is lost.
    ClaimReplyLost(usize),
    Finish(usize, bool),
    Arrive(Record),
    /// It arrives, but the reply is lost and the engine sends it again.
    ArriveReplyLost(Record),
    Heartbeat(usize),
    Die(usize),
    DeclareLost(usize),
    Recover(Claim),
    Cancel,
}

impl Model for Protocol {
    type State = State;
    type Action = Event;

    fn init_states(&self) -> Vec<State> {
        vec![State {
            sessions: Vec::new(),
            waiting: Some((1, 0)),
            claims: BTreeSet::new(),
            ended: Vec::new(),
            cancel_request: None,
            engines: Default::default(),
            in_flight: BTreeSet::new(),
            claim_ignored: false,
        }]
    }

    fn actions(&self, state: &State, events: &mut Vec<Event>) {
        events.push(Event::Tick);
        for (n, engine) in state.engines.iter().enumerate() {
            let Some(_) = engine.session else {
                events.push(Event::Register(n));
                continue;
            };
            events.extend([Event::Heartbeat(n), Event::Die(n)]);
            if engine.running.is_some() {
                events.extend([Event::Finish(n, true), Event::Finish(n, false)]);
            } else if state.waiting.is_some() && engine.unrecorded.is_none() {
                events.extend([Event::Claim(n), Event::ClaimReplyLost(n)]);
            }
        }
        for record in &state.in_flight {
            events.extend([Event::Arrive(*record), Event::ArriveReplyLost(*record)]);
        }
        for (session, row) in state.sessions.iter().enumerate() {
            if !row.ended && self.looks_dead(*row) {
                events.push(Event::DeclareLost(session));
            }
        }
        for claim in &state.claims {
            if state.sessions[claim.session].ended || self.0 == Rule::NoLease {
                events.push(Event::Recover(*claim));
            }
        }
        events.push(Event::Cancel);
    }

    fn next_state(&self, last: &State, event: Event) -> Option<State> {
        let mut state = last.clone();
        match event {
            Event::Tick => {
                for session in &mut state.sessions {
                    session.age = (session.age + 1).min(LEASE + 1);
                }
            }
            Event::Register(n) => {
                state.engines[n].session = Some(state.sessions.len());
                state.sessions.push(Session { ended: false, age: 0 });
            }
            Event::Claim(n) | Event::ClaimReplyLost(n) => {
                let session = state.engines[n].session?;
                if state.sessions[session].ended {
                    return None;
                }
                let (attempt, retries) = state.waiting.take()?;
                let claim = Claim { session, attempt, retries };
                state.claims.insert(claim);
                if event == Event::Claim(n) {
                    state.engines[n].running = Some(claim);
                }
            }
            Event::Finish(n, success) => {
                let claim = state.engines[n].running.take()?;
                state.engines[n].unrecorded = Some(claim);
                state.in_flight.insert(Record { claim, success });
            }
            Event::Arrive(record) | Event::ArriveReplyLost(record) => {
                let next = match (record.success, record.claim.retries < RETRIES) {
                    (true, _) => NextState::Stopped,
                    (false, true) => NextState::Wait,
                    (false, false) => NextState::Failed,
                };
                state.end(record.claim, next, 1, self.0);
                if event == Event::Arrive(record) {
                    state.in_flight.remove(&record);
                    for engine in &mut state.engines {
                        engine.unrecorded.take_if(|claim| *claim == record.claim);
                    }
                }
            }
            Event::Heartbeat(n) => {
                let session = state.engines[n].session?;
                if state.sessions[session].ended {
                    // It fences itself: it stops its tasks and starts a new session.
                    state.engines[n] = Engine::default();
                    return Some(state);
                }
                state.sessions[session].age = 0;
                let known = [state.engines[n].running, state.engines[n].unrecorded];
                let unknown: Vec<Claim> =
                    state.held().filter(|claim| claim.session == session).collect();
                for claim in unknown.into_iter().filter(|claim| !known.contains(&Some(*claim))) {
                    if self.0 == Rule::LostRepliesIgnored {
                        state.claim_ignored = true;
                        continue;
                    }
                    state.end(claim, NextState::Wait, 0, self.0);
                    state.claims.remove(&claim);
                }
            }
            Event::Die(n) => state.engines[n] = Engine::default(),
            Event::DeclareLost(session) => state.sessions[session].ended = true,
            Event::Recover(claim) => {
                state.claims.remove(&claim);
                let next =
                    if claim.retries < RETRIES { NextState::Wait } else { NextState::Failed };
                state.end(claim, next, 1, self.0);
            }
            Event::Cancel => {
                if let Some((attempt, _)) = state.waiting.take() {
                    state.ended.push((attempt, NextState::Cancelled));
                } else {
                    let held = state.held().next()?;
                    state.cancel_request = Some(held.attempt);
                }
            }
        }
        (state != *last).then_some(state)
    }

    fn within_boundary(&self, state: &State) -> bool {
        state.sessions.len() <= SESSIONS_MAX
            && state.waiting.is_none_or(|(attempt, _)| attempt <= ATTEMPTS_MAX)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always("a task is waiting, held or ended", |_, state: &State| {
                let over = state.ended.iter().any(|(_, next)| *next != NextState::Wait);
                let states = [state.waiting.is_some(), state.held().next().is_some(), over];
                states.into_iter().filter(|here| *here).count() == 1
            }),
            Property::always("an attempt ends once", |_, state: &State| {
                let attempts: BTreeSet<_> =
                    state.ended.iter().map(|(attempt, _)| attempt).collect();
                attempts.len() == state.ended.len()
            }),
            Property::always("one attempt at a time", |_, state: &State| {
                let alive = |claim: &Claim| state.sessions[claim.session].age <= LEASE;
                let running: Vec<_> =
                    state.engines.iter().filter_map(|engine| engine.running).collect();
                running.len() < 2 || !running.iter().all(alive)
            }),
            Property::always("a task is held once", |_, state: &State| state.held().count() < 2),
            Property::always("an engine knows its claims after a heartbeat", |_, state: &State| {
                !state.claim_ignored
            }),
            Property::always("a cancel request is never ignored", |_, state: &State| {
                !state
                    .ended
                    .iter()
                    .any(|ended| Some(*ended) == state.cancel_request.map(|w| (w, NextState::Wait)))
            }),
            Property::sometimes("it succeeds", |_, state: &State| {
                state.ended.last().is_some_and(|(_, next)| *next == NextState::Stopped)
            }),
            Property::sometimes("it fails", |_, state: &State| {
                state.ended.last().is_some_and(|(_, next)| *next == NextState::Failed)
            }),
            Property::sometimes("it is cancelled while it runs", |_, state: &State| {
                state.cancel_request.is_some_and(|cancel_request| {
                    state.ended.contains(&(cancel_request, NextState::Cancelled))
                })
            }),
        ]
    }
}

impl Protocol {
    fn looks_dead(&self, session: Session) -> bool {
        match self.0 {
            Rule::ObserverClock => session.age + 1 > LEASE,
            _ => session.age > LEASE,
        }
    }
}

impl State {
    /// Claimed, and not ended.
    fn held(&self) -> impl Iterator<Item = Claim> {
        let ended = |claim: &Claim| self.ended.iter().any(|(attempt, _)| *attempt == claim.attempt);
        self.claims.iter().copied().filter(move |claim| !ended(claim))
    }

    /// The insert is the fence: a second end changes nothing.
    fn end(&mut self, claim: Claim, next: NextState, costs: u8, rule: Rule) {
        let ended = self.ended.iter().any(|(attempt, _)| *attempt == claim.attempt);
        if ended && rule != Rule::NoFence {
            return;
        }
        let cancel =
            self.cancel_request == Some(claim.attempt) && rule != Rule::CancelRequestsIgnored;
        let next = if next == NextState::Wait && cancel { NextState::Cancelled } else { next };
        if next != NextState::Wait {
            self.ended.push((claim.attempt, next));
            return;
        }
        self.ended.push((claim.attempt, next));
        self.waiting = Some((claim.attempt + 1, claim.retries + costs));
    }
}

#[test]
fn all_interleavings_keep_promises() {
    let checked = Protocol(Rule::Complete).checker().threads(2).spawn_bfs().join();
    checked.assert_properties();
    assert!(checked.unique_state_count() > 10_000, "{}", checked.unique_state_count());
}

/// Without one of the rules, some order of events breaks a promise.
#[test]
fn each_rule_is_needed() {
    for (rule, promise) in [
        (Rule::NoFence, "an attempt ends once"),
        (Rule::ObserverClock, "one attempt at a time"),
        (Rule::NoLease, "one attempt at a time"),
        (Rule::LostRepliesIgnored, "an engine knows its claims after a heartbeat"),
        (Rule::CancelRequestsIgnored, "a cancel request is never ignored"),
    ] {
        let found = HasDiscoveries::AnyOf([promise].into());
        let checked = Protocol(rule).checker().threads(2).finish_when(found).spawn_bfs().join();
        assert!(checked.discovery(promise).is_some(), "{rule:?} does not break: {promise}");
    }
}
