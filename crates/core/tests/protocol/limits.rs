//! No more attempts of a key run than its limit allows, whichever engines claim, die or come
//! back late.

use std::collections::BTreeMap;

use stateright::{Checker, HasDiscoveries, Model, Property};

const MAX: usize = 2;
const TASKS: usize = 3;
const CLAIMERS: usize = 2;
const ATTEMPTS: u8 = 2;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Rule {
    Complete,
    /// A claim replaces the state that it has read without locking it.
    NoLock,
    /// A claim that finds its state replaced takes another row of the key.
    AnyRow,
    /// A counter is raised by claims and lowered by ends, also by late ones.
    Counter,
    /// The lock compares the number of the row, but not when it was written. Numbers begin
    /// again after the key was removed.
    NumberOnly,
    /// A holder whose end retention has removed counts as running.
    RetentionForgotten,
}

#[derive(Debug)]
struct Key(Rule);

/// An attempt: the task and its number.
type Attempt = (usize, u8);

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Task {
    Waiting(u8),
    Running(u8),
    Ended,
    /// Retention has removed it, with its ends.
    Removed,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct State {
    tasks: [Task; TASKS],
    /// Recorded ends.
    ended: Vec<Attempt>,
    /// Attempts of engines that were declared lost and have not noticed it.
    zombies: Vec<Attempt>,
    /// The stored rows of the key: the holders, by the number of starts.
    rows: BTreeMap<u8, Row>,
    /// What each claimer has read.
    read: [Option<Read>; CLAIMERS],
    counter: i8,
    pruned: bool,
    /// The time, which passes with every write of a row.
    now: u8,
    /// How many engines were lost.
    lost: u8,
}

/// A row of the key.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Row {
    written: u8,
    holders: Vec<Attempt>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Read {
    /// The number of the newest row, and when it was written; `None` if the key had no row.
    row: Option<(u8, u8)>,
    open: Vec<Attempt>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Event {
    Read(usize),
    /// Adds the first row of the key, if there is none with the number 0.
    AddFirst(usize),
    /// Starts this many tasks.
    Take(usize, usize),
    Record(usize),
    /// The engine is declared lost, and its attempt is recovered.
    Recover(usize),
    RecordLate(usize),
    RemoveTask(usize),
    /// Removes the row of a key that is not in use.
    PruneKey,
}

impl Model for Key {
    type State = State;
    type Action = Event;

    fn init_states(&self) -> Vec<State> {
        vec![State {
            tasks: [Task::Waiting(1); TASKS],
            ended: Vec::new(),
            zombies: Vec::new(),
            rows: BTreeMap::new(),
            read: Default::default(),
            counter: 0,
            pruned: false,
            now: 0,
            lost: 0,
        }]
    }

    fn actions(&self, state: &State, events: &mut Vec<Event>) {
        for (n, read) in state.read.iter().enumerate() {
            match read {
                None => events.push(Event::Read(n)),
                Some(Read { row: None, .. }) => events.push(Event::AddFirst(n)),
                Some(_) => events.extend([Event::Take(n, 1), Event::Take(n, 2)]),
            }
        }
        for (n, task) in state.tasks.iter().enumerate() {
            match task {
                Task::Running(_) => events.extend([Event::Record(n), Event::Recover(n)]),
                Task::Ended => events.push(Event::RemoveTask(n)),
                Task::Waiting(_) | Task::Removed => {}
            }
        }
        events.extend((0..state.zombies.len()).map(Event::RecordLate));
        if !state.pruned {
            events.push(Event::PruneKey);
        }
    }

    fn next_state(&self, last: &State, event: Event) -> Option<State> {
        let mut state = last.clone();
        match event {
            Event::Read(n) => {
                let newest = state.rows.last_key_value();
                let row = newest.map(|(total, row)| (*total, row.written));
                let open = newest.map(|(_, row)| self.open(&state, &row.holders));
                state.read[n] = Some(Read { row, open: open.unwrap_or_default() });
            }
            Event::AddFirst(n) => {
                state.now += 1;
                let first = Row { written: state.now, holders: Vec::new() };
                state.rows.entry(0).or_insert(first);
                state.read[n] = None;
            }
            Event::Take(n, wanted) => {
                let Read { row, mut open } = state.read[n].take()?;
                let (mut total, written) = row?;
                let is_same = |row: &Row| row.written == written || self.0 == Rule::NumberOnly;
                if !state.rows.get(&total).is_some_and(is_same) {
                    match self.0 {
                        Rule::NoLock | Rule::Counter => {}
                        Rule::AnyRow => {
                            let (other, row) = state.rows.first_key_value()?;
                            (total, open) = (*other, self.open(&state, &row.holders));
                        }
                        Rule::Complete | Rule::NumberOnly | Rule::RetentionForgotten => {
                            return Some(state);
                        }
                    }
                }
                let running = if self.0 == Rule::Counter {
                    usize::try_from(state.counter).unwrap_or(0)
                } else {
                    open.len()
                };
                let mut started = 0;
                for (task, place) in state.tasks.iter_mut().enumerate() {
                    if let Task::Waiting(attempt) = *place
                        && started < wanted.min(MAX.saturating_sub(running))
                    {
                        *place = Task::Running(attempt);
                        open.push((task, attempt));
                        started += 1;
                    }
                }
                if started > 0 {
                    let next = total + u8::try_from(started).ok()?;
                    state.counter += i8::try_from(started).ok()?;
                    state.rows.remove(&total);
                    // The primary key refuses a second row of this number.
                    state.now += 1;
                    let row = Row { written: state.now, holders: open };
                    if state.rows.insert(next, row).is_some() {
                        return None;
                    }
                }
            }
            Event::Record(task) => state.end(task, false)?,
            Event::Recover(task) => state.end(task, true)?,
            Event::RecordLate(n) => {
                state.zombies.remove(n);
                state.counter -= 1;
            }
            Event::RemoveTask(task) => {
                state.tasks[task] = Task::Removed;
                state.ended.retain(|(of, _)| *of != task);
            }
            Event::PruneKey => {
                let (total, row) = state.rows.last_key_value()?;
                if !self.open(&state, &row.holders).is_empty() {
                    return None;
                }
                let total = *total;
                state.rows.remove(&total);
                state.pruned = true;
            }
        }
        if self.0 != Rule::Counter {
            state.counter = 0;
        }
        Some(state)
    }

    /// One lost engine and one removed task are enough to break each rule.
    fn within_boundary(&self, state: &State) -> bool {
        let removed = state.tasks.iter().filter(|task| **task == Task::Removed).count();
        state.lost <= 1 && removed <= 1
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always("the limit holds", |_, state: &State| state.running() <= MAX),
            Property::sometimes("the limit is used", |_, state: &State| state.running() == MAX),
            Property::always("a free key is not blocked", |model: &Key, state: &State| {
                let newest = state.rows.last_key_value();
                newest
                    .is_none_or(|(_, row)| model.open(state, &row.holders).len() <= state.running())
            }),
            Property::sometimes("all tasks end", |_, state: &State| {
                state.tasks.iter().all(|task| matches!(task, Task::Ended | Task::Removed))
            }),
        ]
    }
}

impl Key {
    /// The holders whose attempts have not ended.
    fn open(&self, state: &State, holders: &[Attempt]) -> Vec<Attempt> {
        let is_open = |holder: &&Attempt| {
            let removed = state.tasks[holder.0] == Task::Removed;
            !state.ended.contains(holder) && (!removed || self.0 == Rule::RetentionForgotten)
        };
        holders.iter().filter(is_open).copied().collect()
    }
}

impl State {
    fn running(&self) -> usize {
        self.tasks.iter().filter(|task| matches!(task, Task::Running(_))).count()
    }

    fn end(&mut self, task: usize, lost: bool) -> Option<()> {
        let Task::Running(attempt) = self.tasks[task] else { return None };
        self.ended.push((task, attempt));
        self.ended.sort_unstable();
        self.counter -= 1;
        self.tasks[task] =
            if lost && attempt < ATTEMPTS { Task::Waiting(attempt + 1) } else { Task::Ended };
        if lost {
            self.lost += 1;
            self.zombies.push((task, attempt));
        }
        Some(())
    }
}

#[test]
fn limit_is_never_exceeded() {
    let checked = Key(Rule::Complete).checker().threads(2).spawn_bfs().join();
    checked.assert_properties();
    assert!(checked.unique_state_count() > 1_000, "{}", checked.unique_state_count());
}

#[test]
fn each_rule_of_limits_is_needed() {
    let holds = "the limit holds";
    let variants = [
        (Rule::NoLock, holds),
        (Rule::AnyRow, holds),
        (Rule::NumberOnly, holds),
        (Rule::Counter, holds),
        (Rule::RetentionForgotten, "a free key is not blocked"),
    ];
    for (rule, broken) in variants {
        let found = HasDiscoveries::AllOf([broken].into());
        let checked = Key(rule).checker().threads(2).finish_when(found).spawn_bfs().join();
        checked.assert_any_discovery(broken);
    }
}
