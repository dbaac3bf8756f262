//! A slot of a schedule fires once, whichever engines read it or die.

use stateright::{Checker, Model, Property};

const ENGINES: usize = 3;
const SLOTS: u8 = 3;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Rule {
    Complete,
    /// Fires without a comparison of the version.
    NoComparison,
    /// Creates the task and advances the schedule in two transactions.
    TwoCommits,
}

#[derive(Debug)]
struct Schedule(Rule);

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct State {
    version: u8,
    next_slot: u8,
    /// The slots of the tasks that were created.
    fired: Vec<u8>,
    paused: bool,
    engines: [Engine; ENGINES],
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
struct Engine {
    /// Version and slot, as the engine has read them.
    read: Option<(u8, u8)>,
    /// Only with two commits: the task is created, the schedule not advanced.
    between: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Event {
    Read(usize),
    Fire(usize),
    Advance(usize),
    /// It dies, and another engine starts in its place.
    Die(usize),
    Pause,
    Resume,
}

impl Model for Schedule {
    type State = State;
    type Action = Event;

    fn init_states(&self) -> Vec<State> {
        let engines = Default::default();
        vec![State { version: 0, next_slot: 0, fired: Vec::new(), paused: false, engines }]
    }

    fn actions(&self, state: &State, events: &mut Vec<Event>) {
        for (n, engine) in state.engines.iter().enumerate() {
            if engine.between {
                events.extend([Event::Advance(n), Event::Die(n)]);
            } else if engine.read.is_some() {
                events.extend([Event::Fire(n), Event::Die(n)]);
            } else if !state.paused && state.next_slot < SLOTS {
                events.push(Event::Read(n));
            }
        }
        events.push(if state.paused { Event::Resume } else { Event::Pause });
    }

    fn next_state(&self, last: &State, event: Event) -> Option<State> {
        let mut state = last.clone();
        match event {
            Event::Read(n) => state.engines[n].read = Some((state.version, state.next_slot)),
            Event::Fire(n) => {
                let (version, slot) = state.engines[n].read?;
                if version != state.version && self.0 != Rule::NoComparison {
                    state.engines[n] = Engine::default();
                    return Some(state);
                }
                state.fired.push(slot);
                if self.0 == Rule::TwoCommits {
                    state.engines[n].between = true;
                } else {
                    state.advance(slot);
                    state.engines[n] = Engine::default();
                }
            }
            Event::Advance(n) => {
                let (_, slot) = state.engines[n].read?;
                state.advance(slot);
                state.engines[n] = Engine::default();
            }
            Event::Die(n) => state.engines[n] = Engine::default(),
            Event::Pause | Event::Resume => {
                state.paused = event == Event::Pause;
                state.version += 1;
            }
        }
        Some(state)
    }

    fn within_boundary(&self, state: &State) -> bool {
        state.version <= 6 && state.fired.len() <= usize::from(SLOTS) + 1
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always("a slot fires once", |_, state: &State| {
                (0..SLOTS)
                    .all(|slot| state.fired.iter().filter(|fired| **fired == slot).count() < 2)
            }),
            Property::always("no slot is skipped", |_, state: &State| {
                (0..state.next_slot).all(|slot| state.fired.contains(&slot))
            }),
            Property::sometimes("all slots fire", |_, state: &State| {
                state.fired.len() == usize::from(SLOTS)
            }),
        ]
    }
}

impl State {
    fn advance(&mut self, slot: u8) {
        self.next_slot = slot + 1;
        self.version += 1;
    }
}

#[test]
fn slot_fires_once() {
    let checked = Schedule(Rule::Complete).checker().threads(2).spawn_bfs().join();
    checked.assert_properties();
    assert!(checked.unique_state_count() > 1_000, "{}", checked.unique_state_count());
}

#[test]
fn each_rule_is_needed() {
    for rule in [Rule::NoComparison, Rule::TwoCommits] {
        let checked = Schedule(rule).checker().threads(2).spawn_bfs().join();
        checked.assert_any_discovery("a slot fires once");
    }
}
