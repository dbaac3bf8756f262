//! A task that calls child tasks and is suspended until all of them have ended.
//! Engines may die between the commit of a child's end and the call of
//! `resume_parents` (here: a look), and at any statement of a look.
//!
//! A transaction is split into its statements. A statement reads committed rows;
//! the writes of a transaction are committed by its last event. Row locks are kept
//! until then.

use std::collections::BTreeSet;

use stateright::{Checker, HasDiscoveries, Model, Property};

const ATTEMPTS_MAX: u8 = 3;
const CHILDREN: u8 = 2;
/// Looks at the same time. Ends of children and suspensions may exceed it.
const LOOKS_MAX: usize = 2;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Rule {
    Complete,
    /// Also complete, without edits and lost attempts: a look locks and reads in one statement, whose snapshot may be older
    /// than the lock.
    LookInOneStatement,
    /// Children stay, although the step was recorded by another attempt.
    ConflictKeepsChildren,
    /// The engine does not look after the commit of a suspension.
    NoLookAfterSuspension,
    /// The engine does not look after the commit of a child's end.
    NoLookAfterEnd,
    /// The engine does not look at the child that it watches next.
    NoLookAfterMove,
    /// Heartbeats do not make up for looks that a crash prevented.
    NoSweep,
    /// The end of a child resumes the parent, whatever the other children do.
    OthersIgnored,
    /// A look does not lock the row of the suspended task.
    NoLockInLook,
    /// A look deletes the row of the suspended task even if an edit has replaced the
    /// waiting row, so that the look cannot make it due.
    SuspensionAlwaysDeleted,
    /// An attempt may end a second time.
    NoFence,
}

#[derive(Debug)]
struct Protocol(Rule);

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct State {
    // Committed rows.
    /// The attempts whose children were created.
    calls: Vec<u8>,
    ended_children: BTreeSet<u8>,
    suspended: Option<Suspended>,
    waiting: Option<Waiting>,
    claims: BTreeSet<u8>,
    /// In the order in which they were written.
    ended: Vec<(u8, End)>,
    // Engines and operators.
    /// What each attempt of the parent does next. Attempt 1 comes first.
    attempts: Vec<Position>,
    /// Sorted: looks are alike.
    looks: Vec<Look>,
    edit: Edit,
    // What has happened.
    /// The attempts whose suspension a look has ended.
    resumed: Vec<u8>,
    resumed_early: bool,
    /// An engine died before it could look, or met an edit.
    look_failed: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Suspended {
    attempt: u8,
    watching: u8,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Waiting {
    attempt: u8,
    due_now: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum End {
    Suspended,
    Lost,
    Stopped,
}

/// A transaction that replaces the waiting row of the parent by one with the same due
/// time: an operator edits the priority, or an application creates the task again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Edit {
    None,
    Open,
    Committed,
}

/// The next statement of an attempt of the parent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Position {
    Load,
    Call,
    CallCommit,
    /// The children are known: read whether they have ended.
    Await,
    Suspend,
    /// The snapshot is taken; the row of the suspended task may be locked.
    SuspendWrite {
        watching: Option<u8>,
    },
    SuspendCommit {
        watching: Option<u8>,
    },
    Over,
}

/// The next statement of a call of `resume_parents` about one child.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Look {
    Lock {
        child: u8,
    },
    /// Only with one statement: waits for the lock, with this snapshot.
    LockWithSnapshot {
        child: u8,
        ended_children: BTreeSet<u8>,
        waiting: Option<Waiting>,
    },
    Write(Suspended),
    Commit {
        attempt: u8,
        next: Option<u8>,
        /// It has deleted the waiting row of the next attempt.
        resumes: bool,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Event {
    /// Of a task that is due, or that an operator has made due.
    Claim,
    /// The attempt executes its next statement.
    Continue(u8),
    /// The engine dies in a transaction. Otherwise it dies by not continuing.
    RollBack(u8),
    /// The engine is declared lost. If it lives, it goes on.
    Recover(u8),
    ChildEnds(u8),
    ContinueLook(usize),
    /// The engine dies before or in a look.
    DropLook(usize),
    /// A heartbeat looks at suspended tasks.
    Sweep,
    Edit,
}

impl Model for Protocol {
    type State = State;
    type Action = Event;

    fn init_states(&self) -> Vec<State> {
        vec![State {
            calls: Vec::new(),
            ended_children: BTreeSet::new(),
            suspended: None,
            waiting: Some(Waiting { attempt: 1, due_now: true }),
            claims: BTreeSet::new(),
            ended: Vec::new(),
            attempts: Vec::new(),
            looks: Vec::new(),
            edit: Edit::None,
            resumed: Vec::new(),
            resumed_early: false,
            look_failed: false,
        }]
    }

    fn actions(&self, state: &State, events: &mut Vec<Event>) {
        events.push(Event::Claim);
        for (attempt, position) in (1..).zip(&state.attempts) {
            if *position != Position::Over {
                events.push(Event::Continue(attempt));
            }
            if matches!(
                position,
                Position::CallCommit
                    | Position::SuspendWrite { .. }
                    | Position::SuspendCommit { .. }
            ) {
                events.push(Event::RollBack(attempt));
            }
        }
        if !state.calls.is_empty() {
            events.extend((1..=CHILDREN).map(Event::ChildEnds));
        }
        for n in 0..state.looks.len() {
            events.extend([Event::ContinueLook(n), Event::DropLook(n)]);
        }
        if self.sweep_finds(state).is_some() && state.looks.len() < LOOKS_MAX {
            events.push(Event::Sweep);
        }
        // An old snapshot would need versions of the waiting row. Lost attempts do not
        // matter to it.
        if self.0 != Rule::LookInOneStatement {
            events.push(Event::Edit);
            events.extend(state.claims.iter().map(|attempt| Event::Recover(*attempt)));
        }
    }

    fn next_state(&self, last: &State, event: Event) -> Option<State> {
        let mut state = last.clone();
        match event {
            Event::Claim => {
                if state.waiting_row_is_locked() {
                    return None; // Claims skip it.
                }
                let waiting = state.waiting.take()?;
                state.claims.insert(waiting.attempt);
                state.attempts.push(Position::Load);
            }
            Event::Continue(attempt) => {
                let position = self.continue_attempt(&mut state, attempt)?;
                state.attempts[usize::from(attempt) - 1] = position;
            }
            Event::RollBack(attempt) => {
                state.attempts[usize::from(attempt) - 1] = Position::Over;
            }
            Event::Recover(attempt) => {
                let position = state.attempts[usize::from(attempt) - 1];
                if matches!(position, Position::SuspendCommit { .. }) {
                    return None; // It meets the key of the end, and waits.
                }
                state.end(attempt, End::Lost);
                state.waiting = Some(Waiting { attempt: attempt + 1, due_now: true });
            }
            Event::ChildEnds(child) => {
                if state.ended_children.insert(child) && self.0 != Rule::NoLookAfterEnd {
                    state.looks.push(Look::Lock { child });
                }
            }
            Event::ContinueLook(n) => {
                let look = state.looks.remove(n);
                let next = self.continue_look(&mut state, look)?;
                state.looks.extend(next);
            }
            Event::DropLook(n) => {
                state.looks.remove(n);
                state.look_failed = true;
            }
            Event::Edit => {
                state.edit = match state.edit {
                    Edit::None if state.waiting?.due_now => return None,
                    Edit::None if state.waiting_row_is_locked() => return None,
                    Edit::None => Edit::Open,
                    Edit::Open => Edit::Committed,
                    Edit::Committed => return None,
                }
            }
            Event::Sweep => state.looks.push(Look::Lock { child: self.sweep_finds(last)? }),
        }
        state.looks.sort();
        (state != *last).then_some(state)
    }

    fn within_boundary(&self, state: &State) -> bool {
        state.waiting.is_none_or(|waiting| waiting.attempt <= ATTEMPTS_MAX)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always("a task is waiting, held or ended", |_, state: &State| {
                let over = state.ended.iter().any(|(_, end)| *end == End::Stopped);
                let states = [state.waiting.is_some(), !state.claims.is_empty(), over];
                states.into_iter().filter(|here| *here).count() == 1
            }),
            Property::always("an attempt ends once", |_, state: &State| {
                let attempts: BTreeSet<_> =
                    state.ended.iter().map(|(attempt, _)| attempt).collect();
                attempts.len() == state.ended.len()
            }),
            Property::always("children are created once", |_, state: &State| state.calls.len() < 2),
            Property::always(
                "a parent never waits for ended children",
                |protocol, state: &State| {
                    !(state.waits_for_ended_children() && protocol.sweep_finds(state).is_none())
                },
            ),
            Property::always("no sweep is needed without a crash", |_, state: &State| {
                !state.waits_for_ended_children() || state.look_failed
            }),
            Property::always("a suspension is resumed once", |_, state: &State| {
                let attempts: BTreeSet<_> = state.resumed.iter().collect();
                attempts.len() == state.resumed.len()
            }),
            Property::always("a parent is not resumed before all ended", |_, state: &State| {
                !state.resumed_early
            }),
            Property::sometimes("a resumed parent succeeds", |_, state: &State| {
                state.ended == [(1, End::Suspended), (2, End::Stopped)] && state.resumed == [1]
            }),
            Property::sometimes("a parent is suspended again", |_, state: &State| {
                state.ended.starts_with(&[(1, End::Suspended), (2, End::Suspended)])
                    && state.resumed == [2]
            }),
            Property::sometimes("children of a lost attempt are adopted", |_, state: &State| {
                state.ended.starts_with(&[(1, End::Lost), (2, End::Suspended)])
                    && state.calls == [1]
            }),
        ]
    }
}

impl Protocol {
    /// Executes the next statement of an attempt. `None`: it waits for a lock.
    fn continue_attempt(&self, state: &mut State, attempt: u8) -> Option<Position> {
        let held = state.claims.contains(&attempt);
        Some(match state.attempts[usize::from(attempt) - 1] {
            Position::Load if !state.calls.is_empty() => Position::Await,
            Position::Load if held => Position::Call,
            Position::Load => Position::Over,
            // Creates the children; the step's key decides.
            Position::Call if state.calls.is_empty() || self.0 == Rule::ConflictKeepsChildren => {
                if state.attempts.contains(&Position::CallCommit) {
                    return None;
                }
                Position::CallCommit
            }
            Position::Call => Position::Await,
            Position::CallCommit => {
                state.calls.push(attempt);
                Position::Await
            }
            Position::Await if state.next_unfinished().is_some() => Position::Suspend,
            Position::Await => {
                if held {
                    state.end(attempt, End::Stopped);
                }
                Position::Over
            }
            Position::Suspend => Position::SuspendWrite { watching: state.next_unfinished() },
            Position::SuspendWrite { .. } if !held && self.0 != Rule::NoFence => Position::Over,
            Position::SuspendWrite { watching } => {
                if state.suspended.is_some() && self.suspended_row_is_locked(state) {
                    return None;
                }
                Position::SuspendCommit { watching }
            }
            Position::SuspendCommit { watching } => {
                state.end(attempt, End::Suspended);
                let due_now = watching.is_none();
                state.waiting = Some(Waiting { attempt: attempt + 1, due_now });
                state.suspended = watching.map(|watching| Suspended { attempt, watching });
                if self.0 != Rule::NoLookAfterSuspension {
                    state.looks.extend(watching.map(|child| Look::Lock { child }));
                }
                Position::Over
            }
            Position::Over => return None,
        })
    }

    /// Executes the next statement of a look. `None`: it waits for a lock.
    /// `Some(None)`: there is nothing more to do.
    fn continue_look(&self, state: &mut State, look: Look) -> Option<Option<Look>> {
        Some(match look {
            Look::Lock { child } => {
                let Some(suspended) = state.watched(child) else { return Some(None) };
                if self.0 == Rule::LookInOneStatement {
                    let ended_children = state.ended_children.clone();
                    let waiting = state.waiting;
                    return Some(Some(Look::LockWithSnapshot { child, ended_children, waiting }));
                }
                if self.suspended_row_is_locked(state) {
                    return None;
                }
                Some(Look::Write(suspended))
            }
            Look::LockWithSnapshot { child, ended_children, waiting } => {
                if self.suspended_row_is_locked(state) {
                    return None;
                }
                // The locked row is the current one, all other rows are from the snapshot.
                let Some(suspended) = state.watched(child) else { return Some(None) };
                let attempt = suspended.attempt;
                let next = (1..=CHILDREN).find(|child| !ended_children.contains(child));
                let waits = waiting.is_some_and(|waiting| waiting.attempt == attempt + 1);
                let found = waiting == state.waiting && !state.waiting_row_is_locked();
                let is_last = next.is_none() && waits;
                state.look_failed |= is_last && state.edit == Edit::Open;
                Some(Look::Commit { attempt, next, resumes: is_last && found })
            }
            Look::Write(Suspended { attempt, .. }) => {
                let next = match self.0 {
                    Rule::OthersIgnored => None,
                    _ => state.next_unfinished(),
                };
                let waits = state.waiting.is_some_and(|waiting| waiting.attempt == attempt + 1);
                // A waiting row that is locked is skipped. An edit may also have replaced
                // it after the snapshot: the same, since the new row is not visible.
                let found = !state.waiting_row_is_locked();
                let is_last = next.is_none() && waits;
                state.look_failed |= is_last && state.edit == Edit::Open;
                Some(Look::Commit { attempt, next, resumes: is_last && found })
            }
            Look::Commit { attempt, next: Some(watching), .. } => {
                state.suspended = Some(Suspended { attempt, watching });
                let looks = self.0 != Rule::NoLookAfterMove;
                looks.then_some(Look::Lock { child: watching })
            }
            Look::Commit { attempt, next: None, resumes } => {
                // Otherwise the row is left for a sweep.
                if resumes || self.0 == Rule::SuspensionAlwaysDeleted {
                    state.suspended = None;
                }
                if resumes {
                    state.resumed_early |= state.next_unfinished().is_some();
                    state.resumed.push(attempt);
                    state.waiting = Some(Waiting { attempt: attempt + 1, due_now: true });
                }
                None
            }
        })
    }

    fn suspended_row_is_locked(&self, state: &State) -> bool {
        let by_look = |look: &Look| matches!(look, Look::Write(_) | Look::Commit { .. });
        let by_attempt = |position: &Position| matches!(position, Position::SuspendCommit { .. });
        (self.0 != Rule::NoLockInLook && state.looks.iter().any(by_look))
            || state.attempts.iter().any(by_attempt)
    }

    /// The child about which a sweep would look. Rows of earlier suspensions do not count.
    fn sweep_finds(&self, state: &State) -> Option<u8> {
        let Suspended { attempt, watching } = state.suspended?;
        let counts = state.waiting?.attempt == attempt + 1 && self.0 != Rule::NoSweep;
        (counts && state.ended_children.contains(&watching)).then_some(watching)
    }
}

impl State {
    fn end(&mut self, attempt: u8, end: End) {
        self.ended.push((attempt, end));
        self.claims.remove(&attempt);
    }

    fn next_unfinished(&self) -> Option<u8> {
        (1..=CHILDREN).find(|child| !self.ended_children.contains(child))
    }

    /// By a look that resumes the parent, or by an edit.
    fn waiting_row_is_locked(&self) -> bool {
        let resumes = |look: &Look| matches!(look, Look::Commit { resumes: true, .. });
        self.looks.iter().any(resumes) || self.edit == Edit::Open
    }

    /// All have ended, the parent waits for them, and no look is left.
    fn waits_for_ended_children(&self) -> bool {
        let waits = self.waiting.is_some_and(|waiting| !waiting.due_now);
        waits && self.next_unfinished().is_none() && self.looks.is_empty()
    }

    /// The suspended parent that watches this child, if the child has ended.
    fn watched(&self, child: u8) -> Option<Suspended> {
        let ended = self.ended_children.contains(&child);
        self.suspended.filter(|suspended| suspended.watching == child && ended)
    }
}

#[test]
fn all_interleavings_keep_promises() {
    let checked = Protocol(Rule::Complete).checker().threads(2).spawn_bfs().join();
    checked.assert_properties();
    assert!(checked.unique_state_count() > 10_000, "{}", checked.unique_state_count());
}

/// A look may have a snapshot that is older than its lock, because engines look again.
#[test]
fn look_in_one_statement_suffices() {
    let checked = Protocol(Rule::LookInOneStatement).checker().threads(2).spawn_bfs().join();
    for promise in [
        "a task is waiting, held or ended",
        "a parent never waits for ended children",
        "no sweep is needed without a crash",
        "a suspension is resumed once",
        "a parent is not resumed before all ended",
    ] {
        checked.assert_no_discovery(promise);
    }
    assert!(checked.unique_state_count() > 1_000, "{}", checked.unique_state_count());
}

/// Without one of the rules, some order of events breaks a promise.
#[test]
fn each_rule_is_needed() {
    for (rule, promise) in [
        (Rule::ConflictKeepsChildren, "children are created once"),
        (Rule::NoLookAfterSuspension, "no sweep is needed without a crash"),
        (Rule::NoLookAfterEnd, "no sweep is needed without a crash"),
        (Rule::NoLookAfterMove, "no sweep is needed without a crash"),
        (Rule::NoSweep, "a parent never waits for ended children"),
        (Rule::OthersIgnored, "a parent is not resumed before all ended"),
        (Rule::NoLockInLook, "a suspension is resumed once"),
        (Rule::SuspensionAlwaysDeleted, "a parent never waits for ended children"),
        (Rule::NoFence, "an attempt ends once"),
    ] {
        let found = HasDiscoveries::AnyOf([promise].into());
        let checked = Protocol(rule).checker().threads(2).finish_when(found).spawn_bfs().join();
        assert!(checked.discovery(promise).is_some(), "{rule:?} does not break: {promise}");
    }
}
