//! Tasks of a key in order run one at a time, in their order: the key belongs to a task from its
//! first start until it has ended, also while it waits for its retry.

use stateright::{Checker, HasDiscoveries, Model, Property};

const TASKS: usize = 3;
const CLAIMERS: usize = 2;
const ATTEMPTS: u8 = 2;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Rule {
    Complete,
    /// The key is free as soon as the attempt has ended, as with a maximum of one.
    FreeAtEndOfAttempt,
    /// A claim does not compare the state of the key with the one that it has decided by.
    NoLock,
    /// If the first task is locked, a claim takes the next one.
    NextIfLocked,
}

#[derive(Debug)]
struct Key(Rule);

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Task {
    /// Due, or not yet.
    Waiting(u8, bool),
    Running(u8),
    Ended,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct State {
    /// In their order.
    tasks: [Task; TASKS],
    /// The newest row of the key: how many have started, and the last of them.
    row: Option<(u8, usize)>,
    /// What each claimer has read: the number of the row, and the task that may start.
    read: [Option<(u8, usize)>; CLAIMERS],
    /// The waiting row that another transaction has locked.
    locked: Option<usize>,
    /// An operator has retried a task.
    retried: bool,
    /// Tasks that have started and have not ended.
    begun: [bool; TASKS],
    /// Tasks that have ever started.
    known: [bool; TASKS],
    /// A task started although the key belonged to another one.
    overtaken: bool,
    /// A task started although an earlier one was due and had never started.
    passed: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Event {
    Read(usize),
    Take(usize),
    Succeed(usize),
    /// It waits for its retry, if one is left.
    Fail(usize),
    /// The time of its retry has come.
    Due(usize),
    /// Another transaction locks a waiting row, and lets it go.
    Lock(usize),
    Unlock,
    /// An operator sends an ended task back to wait.
    Retry(usize),
}

impl Model for Key {
    type State = State;
    type Action = Event;

    fn init_states(&self) -> Vec<State> {
        vec![State {
            tasks: [Task::Waiting(1, true); TASKS],
            row: None,
            read: [None; CLAIMERS],
            locked: None,
            retried: false,
            begun: [false; TASKS],
            known: [false; TASKS],
            overtaken: false,
            passed: false,
        }]
    }

    fn actions(&self, state: &State, events: &mut Vec<Event>) {
        for (n, read) in state.read.iter().enumerate() {
            events.push(if read.is_none() { Event::Read(n) } else { Event::Take(n) });
        }
        for (n, task) in state.tasks.iter().enumerate() {
            match task {
                Task::Waiting(_, false) => events.push(Event::Due(n)),
                Task::Waiting(_, true) if state.locked.is_none() => events.push(Event::Lock(n)),
                Task::Waiting(..) => {}
                Task::Running(_) => events.extend([Event::Succeed(n), Event::Fail(n)]),
                Task::Ended if !state.retried => events.push(Event::Retry(n)),
                Task::Ended => {}
            }
        }
        if state.locked.is_some() {
            events.push(Event::Unlock);
        }
    }

    fn next_state(&self, last: &State, event: Event) -> Option<State> {
        let mut state = last.clone();
        match event {
            Event::Read(n) => state.read[n] = Some((state.number(), self.first(&state)?)),
            Event::Take(n) => {
                let (number, first) = state.read[n].take()?;
                if number != state.number() && self.0 != Rule::NoLock {
                    return Some(state);
                }
                let is_free = |task: usize| {
                    matches!(state.tasks[task], Task::Waiting(_, true))
                        && state.locked != Some(task)
                };
                let task = match self.0 {
                    Rule::NextIfLocked => (first..TASKS).find(|task| is_free(*task)),
                    _ => Some(first).filter(|task| is_free(*task)),
                };
                if let Some(task) = task {
                    state.start(task)?;
                }
            }
            Event::Succeed(task) => state.end(task),
            Event::Fail(task) => match state.tasks[task] {
                Task::Running(attempt) if attempt < ATTEMPTS => {
                    state.tasks[task] = Task::Waiting(attempt + 1, false);
                }
                _ => state.end(task),
            },
            Event::Due(task) => {
                let Task::Waiting(attempt, false) = state.tasks[task] else { return None };
                state.tasks[task] = Task::Waiting(attempt, true);
            }
            Event::Lock(task) => state.locked = Some(task),
            Event::Unlock => state.locked = None,
            Event::Retry(task) => {
                state.tasks[task] = Task::Waiting(ATTEMPTS, true);
                state.retried = true;
            }
        }
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always("one runs at a time", |_, state: &State| {
                state.tasks.iter().filter(|task| matches!(task, Task::Running(_))).count() <= 1
            }),
            Property::always("the key belongs to a task until its end", |_, state: &State| {
                !state.overtaken
            }),
            Property::always("no task is passed", |_, state: &State| !state.passed),
            Property::sometimes("a task waits for its retry", |_, state: &State| {
                let waits = |task: &Task| matches!(task, Task::Waiting(2, false));
                state.tasks.iter().any(waits) && !state.known[2]
            }),
            Property::sometimes("all tasks end", |_, state: &State| {
                state.tasks.iter().all(|task| *task == Task::Ended)
            }),
        ]
    }
}

impl Key {
    /// The task that may start next, by what a claimer sees: the one that has the key, or the
    /// first that is due. A lock is not seen.
    fn first(&self, state: &State) -> Option<usize> {
        let holder = state.row.map(|(_, holder)| holder).filter(|holder| match self.0 {
            Rule::FreeAtEndOfAttempt => matches!(state.tasks[*holder], Task::Running(_)),
            _ => state.tasks[*holder] != Task::Ended,
        });
        let is_due = |task: &usize| matches!(state.tasks[*task], Task::Waiting(_, true));
        match holder {
            Some(holder) => Some(holder).filter(is_due),
            None => (0..TASKS).find(is_due),
        }
    }
}

impl State {
    fn number(&self) -> u8 {
        self.row.map_or(0, |(number, _)| number)
    }

    fn start(&mut self, task: usize) -> Option<()> {
        let Task::Waiting(attempt, _) = self.tasks[task] else { return None };
        let others = |other: &usize| *other != task;
        self.overtaken |= (0..TASKS).filter(others).any(|other| self.begun[other]);
        self.passed |= (0..task)
            .any(|earlier| !self.known[earlier] && self.tasks[earlier] == Task::Waiting(1, true));
        self.tasks[task] = Task::Running(attempt);
        (self.begun[task], self.known[task]) = (true, true);
        self.row = Some((self.number() + 1, task));
        Some(())
    }

    fn end(&mut self, task: usize) {
        self.tasks[task] = Task::Ended;
        self.begun[task] = false;
    }
}

#[test]
fn tasks_run_in_order() {
    let checked = Key(Rule::Complete).checker().threads(2).spawn_bfs().join();
    checked.assert_properties();
    assert!(checked.unique_state_count() > 1_000, "{}", checked.unique_state_count());
}

#[test]
fn each_rule_of_order_is_needed() {
    let variants = [
        (Rule::FreeAtEndOfAttempt, "the key belongs to a task until its end"),
        (Rule::NoLock, "one runs at a time"),
        (Rule::NextIfLocked, "no task is passed"),
    ];
    for (rule, broken) in variants {
        let found = HasDiscoveries::AllOf([broken].into());
        let checked = Key(rule).checker().threads(2).finish_when(found).spawn_bfs().join();
        checked.assert_any_discovery(broken);
    }
}
