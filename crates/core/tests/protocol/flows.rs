//! A task that depends on two others: it starts or is cancelled after their ends, once. Engines
//! may die between the commit of an end and the call of `resume_parents` (here: a look), and
//! at any statement of a look. The task may be created at any time, and an operator may retry
//! what has failed.
//!
//! A transaction is split into its statements. A statement reads committed rows; the writes of
//! a transaction are committed by its last event. Row locks are kept until then.

use stateright::{Checker, HasDiscoveries, Model, Property};

const PARENTS: usize = 2;
/// The second one must succeed, the first one only end.
const MUST_SUCCEED: [bool; PARENTS] = [false, true];
const ATTEMPTS_MAX: u8 = 2;
/// A sweep begins only if there are fewer looks.
const LOOKS_MAX: usize = 1;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Rule {
    Complete,
    /// The engine does not look after the commit of an end.
    NoLookAfterEnd,
    /// A look does not ask again about the task that is watched next.
    NoLookAfterMove,
    /// A look that leaves the watch where it is does not ask again.
    NoLookIfUnmoved,
    /// A look locks the row of the blocked task although what it watches has not ended, and
    /// does not ask again.
    OpenIsLocked,
    /// A retry does not ask about the tasks that it had locked.
    NoLookAfterRetry,
    /// Heartbeats do not make up for looks that a crash prevented.
    NoSweep,
    /// Heartbeats ask only whether the watched task has ended.
    SweepSeesWatchedOnly,
    /// A look does not lock the row of the blocked task.
    NoLockInLook,
    /// A look reads before it locks the row of the blocked task.
    ReadBeforeLock,
    /// After a failure, too, a look leaves a locked row to the other session.
    FailureSkipsLocked,
    /// A retry does not note that an end no longer counts.
    NoReopenedRows,
    /// A creation does not note that the end of a task counts no longer that was retried
    /// before it had dependents.
    CreationReopensNothing,
    /// A creation does not lock the tasks that are depended on.
    NoLockInCreation,
    /// A creation writes into the context of a waiting task, and keeps its waiting row.
    WaitingRowStays,
    /// A retry restores nothing.
    NothingRestored,
    /// A retry reads before it locks the row of the blocked task.
    RetryReadsBeforeLock,
    /// A retry does not move the watch back to the retried task.
    WatchStays,
}

#[derive(Debug)]
struct Protocol(Rule);

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct State {
    // Committed rows.
    parents: [Parent; PARENTS],
    dependent: Dependent,
    // Sessions.
    creation: Creation,
    retry: Option<Retry>,
    /// A claim with its snapshot: the parent, its waiting row, and whether it is awaited.
    claim: Option<(usize, u8, bool)>,
    /// Sorted: looks are alike.
    looks: Vec<Look>,
    // What has happened.
    starts: u8,
    started_early: bool,
    cancelled_wrongly: bool,
    restored: bool,
    /// An engine died before it could look, or did not know that the task is awaited.
    look_failed: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Parent {
    place: Place,
    /// The attempt that waits or runs, or the last.
    attempt: u8,
    /// The attempt that ended it last, and whether it succeeded.
    newest_end: Option<(u8, bool)>,
    /// The attempt whose end does not count, as stored.
    reopened: Option<u8>,
    /// In its context.
    awaited: bool,
    /// The number of its waiting row.
    row: u8,
    /// It ran when its dependent was created.
    late: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Place {
    Waiting,
    /// The context that its engine has read says that it is awaited.
    Running {
        awaited: bool,
    },
    Ended,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Dependent {
    Absent,
    Blocked { watching: usize },
    Started,
    Cancelled,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Creation {
    None,
    Locked,
    /// What it has read of the parents.
    Written([Parent; PARENTS]),
    Committed,
}

/// The next statement of a retry of this parent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Retry {
    LockDependent { parent: usize, read: Option<Dependent> },
    Decide { parent: usize },
    Commit { parent: usize, dependent: Dependent },
}

/// The next statement of a call of `resume_parents`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Look {
    /// About this parent.
    Find {
        parent: usize,
    },
    /// `waits`: for the lock; it does not skip the row.
    Lock {
        full: bool,
        waits: bool,
        read: Option<Next>,
    },
    Decide {
        full: bool,
    },
    Commit {
        next: Next,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Next {
    Wait(usize),
    Start,
    Cancel,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Event {
    ClaimSnapshot(usize),
    ClaimTake,
    End {
        parent: usize,
        succeeds: bool,
    },
    Create,
    Retry(usize),
    ContinueRetry,
    ContinueLook(usize),
    /// The engine dies before or in a look.
    DropLook(usize),
    /// A heartbeat looks at blocked tasks.
    Sweep,
}

impl Parent {
    /// Whether its newest end counts.
    fn has_ended(&self) -> bool {
        self.newest_end.is_some_and(|(attempt, _)| self.reopened != Some(attempt))
    }

    fn has_failed(&self) -> bool {
        self.has_ended() && self.newest_end.is_some_and(|(_, succeeded)| !succeeded)
    }
}

impl Parent {
    /// Whether it is over with a failure, whatever the rows say.
    fn is_failed(&self) -> bool {
        self.place == Place::Ended && self.newest_end.is_some_and(|(_, succeeded)| !succeeded)
    }
}

/// Decides about a task, as far as a look reads: from this parent on, or about all.
fn decide(parents: &[Parent; PARENTS], from: usize) -> Next {
    let failed = |n: &usize| MUST_SUCCEED[*n] && parents[*n].has_failed();
    if (from..PARENTS).any(|n| failed(&n)) {
        return Next::Cancel;
    }
    (from..PARENTS).find(|n| !parents[*n].has_ended()).map_or(Next::Start, Next::Wait)
}

impl Model for Protocol {
    type State = State;
    type Action = Event;

    fn init_states(&self) -> Vec<State> {
        let parent = Parent {
            place: Place::Waiting,
            attempt: 1,
            newest_end: None,
            reopened: None,
            awaited: false,
            row: 0,
            late: false,
        };
        vec![State {
            parents: [parent; PARENTS],
            dependent: Dependent::Absent,
            creation: Creation::None,
            retry: None,
            claim: None,
            looks: Vec::new(),
            starts: 0,
            started_early: false,
            cancelled_wrongly: false,
            restored: false,
            look_failed: false,
        }]
    }

    fn actions(&self, state: &State, events: &mut Vec<Event>) {
        for parent in 0..PARENTS {
            events.extend([Event::ClaimSnapshot(parent), Event::Retry(parent)]);
            events.extend([true, false].map(|succeeds| Event::End { parent, succeeds }));
        }
        events.extend([Event::ClaimTake, Event::Create, Event::ContinueRetry]);
        for n in 0..state.looks.len() {
            events.extend([Event::ContinueLook(n), Event::DropLook(n)]);
        }
        if self.sweep_finds(state) && state.looks.len() < LOOKS_MAX {
            events.push(Event::Sweep);
        }
    }

    fn next_state(&self, last: &State, event: Event) -> Option<State> {
        let mut state = last.clone();
        match event {
            Event::ClaimSnapshot(n) => {
                let parent = state.parents[n];
                if state.claim.is_some() || parent.place != Place::Waiting {
                    return None;
                }
                state.claim = Some((n, parent.row, parent.awaited));
            }
            Event::ClaimTake => {
                let (n, row, awaited) = state.claim.take()?;
                // A locked row is skipped, and a replaced one is gone.
                let locked = self.0 != Rule::WaitingRowStays
                    && matches!(state.creation, Creation::Written(_));
                let parent = &mut state.parents[n];
                if parent.place == Place::Waiting && parent.row == row && !locked {
                    parent.place = Place::Running { awaited };
                }
            }
            Event::End { parent: n, succeeds } => {
                let parent = &mut state.parents[n];
                let Place::Running { awaited } = parent.place else { return None };
                parent.place = Place::Ended;
                parent.newest_end = Some((parent.attempt, succeeds));
                if awaited && self.0 != Rule::NoLookAfterEnd {
                    state.looks.push(Look::Find { parent: n });
                } else if parent.late || !matches!(state.creation, Creation::Committed) {
                    // The creation has seen it run, or is about to.
                    state.look_failed |= self.0 != Rule::NoLookAfterEnd;
                }
            }
            Event::Create => self.continue_creation(&mut state)?,
            Event::Retry(n) => {
                let parent = state.parents[n];
                if state.retry.is_some() || !parent.is_failed() || parent.attempt == ATTEMPTS_MAX {
                    return None;
                }
                if self.0 != Rule::NoLockInCreation
                    && matches!(state.creation, Creation::Locked | Creation::Written(_))
                {
                    return None; // The creation has locked the task.
                }
                let read = (self.0 == Rule::RetryReadsBeforeLock
                    || self.0 == Rule::NoLockInCreation)
                    .then_some(state.dependent);
                state.retry = Some(Retry::LockDependent { parent: n, read });
            }
            Event::ContinueRetry => self.continue_retry(&mut state)?,
            Event::ContinueLook(n) => {
                let look = state.looks.remove(n);
                let next = self.continue_look(&mut state, look)?;
                state.looks.extend(next);
            }
            Event::DropLook(n) => {
                state.looks.remove(n);
                state.look_failed = true;
            }
            Event::Sweep => state.looks.push(Look::Lock { full: true, waits: false, read: None }),
        }
        state.looks.sort();
        (state != *last).then_some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always("a task starts after all have ended", |_, state: &State| {
                !state.started_early
            }),
            Property::always("a task is cancelled only after a failure", |_, state: &State| {
                !state.cancelled_wrongly
            }),
            Property::always("a task starts once", |_, state: &State| state.starts < 2),
            Property::always("a cancelled task has a failed dependency", |_, state: &State| {
                let failed = (0..PARENTS).any(|n| MUST_SUCCEED[n] && state.parents[n].is_failed());
                state.dependent != Dependent::Cancelled || failed || !state.is_quiet()
            }),
            Property::always("no task waits for nothing", |protocol, state: &State| {
                !state.waits_for_nothing() || protocol.sweep_finds(state)
            }),
            Property::always("no sweep is needed without a crash", |_, state: &State| {
                !state.waits_for_nothing() || state.look_failed
            }),
            Property::sometimes("it starts after both", |_, state: &State| {
                state.dependent == Dependent::Started && !state.look_failed
            }),
            Property::sometimes("it is cancelled while another runs", |_, state: &State| {
                state.dependent == Dependent::Cancelled && !state.parents[0].has_ended()
            }),
            Property::sometimes("it is restored and starts", |_, state: &State| {
                state.restored && state.dependent == Dependent::Started
            }),
            Property::sometimes("it starts after a failure", |_, state: &State| {
                state.parents[0].has_failed() && state.dependent == Dependent::Started
            }),
        ]
    }
}

impl Protocol {
    /// Executes the next statement of the creation. `None`: it waits for a lock, or is over.
    fn continue_creation(&self, state: &mut State) -> Option<()> {
        match state.creation {
            Creation::None => {
                if self.0 != Rule::NoLockInCreation && state.retry.is_some() {
                    return None;
                }
                state.creation = Creation::Locked;
            }
            Creation::Locked => state.creation = Creation::Written(state.parents),
            Creation::Written(mut read) => {
                for (n, parent) in read.iter_mut().enumerate() {
                    let stored = &mut state.parents[n];
                    let open = parent.place != Place::Ended;
                    if let Some((attempt, _)) = parent.newest_end
                        && open
                        && self.0 != Rule::CreationReopensNothing
                    {
                        stored.reopened = Some(attempt);
                        parent.reopened = Some(attempt);
                    }
                    stored.awaited = true;
                    stored.late = matches!(parent.place, Place::Running { .. });
                    if parent.place == Place::Waiting && self.0 != Rule::WaitingRowStays {
                        stored.row += 1;
                    }
                }
                state.creation = Creation::Committed;
                match decide(&read, 0) {
                    Next::Wait(watching) => state.dependent = Dependent::Blocked { watching },
                    next => state.apply(next),
                }
            }
            Creation::Committed => return None,
        }
        Some(())
    }

    /// Executes the next statement of a retry. `None`: it waits for a lock.
    fn continue_retry(&self, state: &mut State) -> Option<()> {
        match state.retry? {
            Retry::LockDependent { parent, read } => {
                if state.dependent_is_locked() {
                    return None;
                }
                let next = match read {
                    Some(read) => {
                        let dependent = self.after_retry(state, parent, read);
                        Retry::Commit { parent, dependent }
                    }
                    None => Retry::Decide { parent },
                };
                state.retry = Some(next);
            }
            Retry::Decide { parent } => {
                let dependent = self.after_retry(state, parent, state.dependent);
                state.retry = Some(Retry::Commit { parent, dependent });
            }
            Retry::Commit { parent: n, dependent } => {
                state.retry = None;
                let parent = &mut state.parents[n];
                parent.place = Place::Waiting;
                if dependent != Dependent::Absent && self.0 != Rule::NoReopenedRows {
                    parent.reopened = Some(parent.attempt);
                }
                parent.attempt += 1;
                parent.row += 1;
                let before = state.dependent;
                if let Dependent::Blocked { watching } = dependent
                    && matches!(before, Dependent::Blocked { .. } | Dependent::Cancelled)
                {
                    // An update of a row that is gone changes nothing.
                    if before == Dependent::Cancelled && self.0 == Rule::RetryReadsBeforeLock {
                        return Some(());
                    }
                    state.restored |= before == Dependent::Cancelled;
                    state.dependent = dependent;
                    if self.0 != Rule::NoLookAfterRetry {
                        state.looks.push(Look::Lock { full: true, waits: false, read: None });
                        state.looks.push(Look::Find { parent: watching });
                    }
                }
            }
        }
        Some(())
    }

    /// What a retry of this parent makes of its dependent, as it was read.
    fn after_retry(&self, state: &State, parent: usize, read: Dependent) -> Dependent {
        let mut parents = state.parents;
        parents[parent].reopened = Some(parents[parent].attempt);
        match read {
            Dependent::Blocked { watching } if self.0 != Rule::WatchStays => {
                Dependent::Blocked { watching: watching.min(parent) }
            }
            Dependent::Cancelled if MUST_SUCCEED[parent] && self.0 != Rule::NothingRestored => {
                match decide(&parents, 0) {
                    Next::Wait(watching) => Dependent::Blocked { watching },
                    _ => Dependent::Cancelled,
                }
            }
            other => other,
        }
    }

    /// Executes the next statement of a look. `None`: it waits for a lock. `Some(None)`: there
    /// is nothing more to do.
    fn continue_look(&self, state: &mut State, look: Look) -> Option<Option<Look>> {
        Some(match look {
            Look::Find { parent: n } => {
                let parent = state.parents[n];
                let Dependent::Blocked { watching } = state.dependent else { return Some(None) };
                let failed = MUST_SUCCEED[n] && parent.has_failed();
                let is_open = !parent.has_ended() && self.0 != Rule::OpenIsLocked;
                if !failed && (watching != n || is_open) {
                    return Some(None);
                }
                let waits = failed && self.0 != Rule::FailureSkipsLocked;
                let read =
                    (self.0 == Rule::ReadBeforeLock).then(|| decide(&state.parents, watching));
                Some(Look::Lock { full: failed, waits, read })
            }
            Look::Lock { full, waits, read } => {
                let locks = self.0 != Rule::NoLockInLook;
                if locks && state.dependent_is_locked() {
                    return if waits { None } else { Some(None) };
                }
                if !matches!(state.dependent, Dependent::Blocked { .. }) {
                    return Some(None);
                }
                Some(read.map_or(Look::Decide { full }, |next| Look::Commit { next }))
            }
            Look::Decide { full } => {
                let Dependent::Blocked { watching } = state.dependent else { return Some(None) };
                let from = if full { 0 } else { watching };
                Some(Look::Commit { next: decide(&state.parents, from) })
            }
            Look::Commit { next: Next::Wait(parent) } => {
                let unmoved = state.dependent == Dependent::Blocked { watching: parent };
                state.dependent = Dependent::Blocked { watching: parent };
                let asks = match self.0 {
                    Rule::NoLookAfterMove => unmoved,
                    Rule::NoLookIfUnmoved | Rule::OpenIsLocked => !unmoved,
                    _ => true,
                };
                asks.then_some(Look::Find { parent })
            }
            Look::Commit { next } => {
                state.apply(next);
                None
            }
        })
    }

    /// Whether a heartbeat finds the blocked task.
    fn sweep_finds(&self, state: &State) -> bool {
        let Dependent::Blocked { watching } = state.dependent else { return false };
        let failed = (0..PARENTS).any(|n| MUST_SUCCEED[n] && state.parents[n].has_failed());
        match self.0 {
            Rule::NoSweep => false,
            Rule::SweepSeesWatchedOnly => state.parents[watching].has_ended(),
            _ => state.parents[watching].has_ended() || failed,
        }
    }
}

impl State {
    /// By a look or a retry that has locked its row.
    fn dependent_is_locked(&self) -> bool {
        let by_look = |look: &Look| matches!(look, Look::Decide { .. } | Look::Commit { .. });
        let by_retry = matches!(self.retry, Some(Retry::Decide { .. } | Retry::Commit { .. }));
        by_retry || self.looks.iter().any(by_look)
    }

    /// Commits a start or a cancellation.
    fn apply(&mut self, next: Next) {
        let failed = (0..PARENTS).any(|n| MUST_SUCCEED[n] && self.parents[n].is_failed());
        if next == Next::Start {
            let open = |parent: &Parent| parent.place != Place::Ended;
            self.started_early |= failed || self.parents.iter().any(open);
            self.starts += 1;
            self.dependent = Dependent::Started;
        } else {
            self.cancelled_wrongly |= !failed || self.dependent == Dependent::Started;
            self.dependent = Dependent::Cancelled;
        }
    }

    /// No transaction is open and no look is left.
    fn is_quiet(&self) -> bool {
        let created = matches!(self.creation, Creation::None | Creation::Committed);
        created && self.retry.is_none() && self.looks.is_empty()
    }

    /// It could start, or cannot start any more, and no look is left.
    fn waits_for_nothing(&self) -> bool {
        matches!(self.dependent, Dependent::Blocked { .. })
            && self.is_quiet()
            && !matches!(decide(&self.parents, 0), Next::Wait(_))
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
        (Rule::NoLookAfterEnd, "no sweep is needed without a crash"),
        (Rule::NoLookAfterMove, "no sweep is needed without a crash"),
        (Rule::NoLookIfUnmoved, "no sweep is needed without a crash"),
        (Rule::OpenIsLocked, "no sweep is needed without a crash"),
        (Rule::NoLookAfterRetry, "no sweep is needed without a crash"),
        (Rule::NoSweep, "no task waits for nothing"),
        (Rule::SweepSeesWatchedOnly, "no task waits for nothing"),
        (Rule::NoLockInLook, "a task starts once"),
        (Rule::ReadBeforeLock, "a task starts after all have ended"),
        (Rule::FailureSkipsLocked, "no sweep is needed without a crash"),
        (Rule::NoReopenedRows, "a task starts after all have ended"),
        (Rule::CreationReopensNothing, "a cancelled task has a failed dependency"),
        (Rule::NoLockInCreation, "a cancelled task has a failed dependency"),
        (Rule::WaitingRowStays, "no sweep is needed without a crash"),
        (Rule::NothingRestored, "a cancelled task has a failed dependency"),
        (Rule::RetryReadsBeforeLock, "a cancelled task has a failed dependency"),
        (Rule::WatchStays, "a task starts after all have ended"),
    ] {
        let found = HasDiscoveries::AnyOf([promise].into());
        let checked = Protocol(rule).checker().threads(2).finish_when(found).spawn_bfs().join();
        assert!(checked.discovery(promise).is_some(), "{rule:?} does not break: {promise}");
    }
}
