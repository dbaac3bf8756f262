//! A slot of a schedule fires once, whoever sees it, and whoever dies.

use stateright::{Checker, Model, Property};

const ENGINES: usize = 3;
const SLOTS: u8 = 3;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Rule {
    Whole,
    /// Fires what was seen without a look at the version.
    NoComparison,
    /// Creates the task and moves the schedule on in two transactions.
    TwoCommits,
}

#[derive(Debug)]
struct Schedule(Rule);

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct World {
    version: u8,
    next_slot: u8,
    /// The slots of the tasks that were created.
    fired: Vec<u8>,
    paused: bool,
    engines: [Engine; ENGINES],
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
struct Engine {
    /// Version and slot, as the engine has seen them.
    seen: Option<(u8, u8)>,
    /// Only with two commits: the task is there, the schedule not moved.
    between: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Event {
    Look(usize),
    Fire(usize),
    Move(usize),
    /// It dies, and another one starts in its place.
    Die(usize),
    Pause,
    Resume,
}

impl Model for Schedule {
    type State = World;
    type Action = Event;

    fn init_states(&self) -> Vec<World> {
        let engines = Default::default();
        vec![World { version: 0, next_slot: 0, fired: Vec::new(), paused: false, engines }]
    }

    fn actions(&self, world: &World, events: &mut Vec<Event>) {
        for (n, engine) in world.engines.iter().enumerate() {
            if engine.between {
                events.extend([Event::Move(n), Event::Die(n)]);
            } else if engine.seen.is_some() {
                events.extend([Event::Fire(n), Event::Die(n)]);
            } else if !world.paused && world.next_slot < SLOTS {
                events.push(Event::Look(n));
            }
        }
        events.push(if world.paused { Event::Resume } else { Event::Pause });
    }

    fn next_state(&self, last: &World, event: Event) -> Option<World> {
        let mut world = last.clone();
        match event {
            Event::Look(n) => world.engines[n].seen = Some((world.version, world.next_slot)),
            Event::Fire(n) => {
                let (version, slot) = world.engines[n].seen?;
                if version != world.version && self.0 != Rule::NoComparison {
                    world.engines[n] = Engine::default();
                    return Some(world);
                }
                world.fired.push(slot);
                if self.0 == Rule::TwoCommits {
                    world.engines[n].between = true;
                } else {
                    world.moves_on(slot);
                    world.engines[n] = Engine::default();
                }
            }
            Event::Move(n) => {
                let (_, slot) = world.engines[n].seen?;
                world.moves_on(slot);
                world.engines[n] = Engine::default();
            }
            Event::Die(n) => world.engines[n] = Engine::default(),
            Event::Pause | Event::Resume => {
                world.paused = event == Event::Pause;
                world.version += 1;
            }
        }
        Some(world)
    }

    fn within_boundary(&self, world: &World) -> bool {
        world.version <= 6 && world.fired.len() <= usize::from(SLOTS) + 1
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always("a slot fires once", |_, world: &World| {
                (0..SLOTS)
                    .all(|slot| world.fired.iter().filter(|fired| **fired == slot).count() < 2)
            }),
            Property::always("none is passed over", |_, world: &World| {
                (0..world.next_slot).all(|slot| world.fired.contains(&slot))
            }),
            Property::sometimes("all slots fire", |_, world: &World| {
                world.fired.len() == usize::from(SLOTS)
            }),
        ]
    }
}

impl World {
    fn moves_on(&mut self, slot: u8) {
        self.next_slot = slot + 1;
        self.version += 1;
    }
}

#[test]
fn a_slot_fires_once() {
    let checked = Schedule(Rule::Whole).checker().threads(2).spawn_bfs().join();
    checked.assert_properties();
    assert!(checked.unique_state_count() > 1_000, "{}", checked.unique_state_count());
}

#[test]
fn without_its_rules_it_would_not() {
    for rule in [Rule::NoComparison, Rule::TwoCommits] {
        let checked = Schedule(rule).checker().threads(2).spawn_bfs().join();
        checked.assert_any_discovery("a slot fires once");
    }
}
