//! One durable task that runs a step and then waits for a signal with a deadline.
//! Its engines may die, or go on after they were declared lost. Applications send
//! signals in transactions that stay open for any time and may roll back.
//!
//! A transaction is split into its statements. A statement reads committed rows;
//! the writes of a transaction are committed by its last event. Row locks are kept
//! until then.

use std::collections::BTreeSet;

use stateright::{Checker, HasDiscoveries, Model, Property};

const ATTEMPTS_MAX: u8 = 3;
const SIGNALLERS: usize = 2;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Rule {
    Complete,
    /// A step is written without a check of the claim, over a stored result.
    StepOverwrites,
    /// An attempt whose step is stored already continues with its own result.
    StepNotAdopted,
    /// An attempt does not load the steps of earlier attempts.
    StepsNotLoaded,
    /// A suspension does not lock the task.
    NoLockInSuspend,
    /// A signal does not lock the task.
    NoLockInSignal,
    /// A signal reads the snapshot of its transaction, which may be older than the lock.
    OldSnapshotInSignal,
    /// A suspension does not look for a signal that is already there.
    EarlySignalIgnored,
    /// A signal inserts a waiting row even if it could not delete the old one.
    SignalInsertsAlways,
    /// An attempt may end a second time.
    NoFence,
    /// A suspension that came too late still replaces the row of the suspended task.
    LateSuspensionWrites,
    /// A suspension keeps the row of an earlier suspension.
    OldSuspensionKept,
    /// An attempt decides about the timeout without a row.
    TimeoutInMemory,
    /// A timeout that finds a row takes it for a signal without reading it.
    TimeoutConflictNotRead,
}

#[derive(Debug)]
struct Protocol(Rule);

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct State {
    // Committed rows.
    /// What was written as the result of the step: the attempt that ran it.
    step: Vec<u8>,
    signal: Option<Answer>,
    /// The attempt that was suspended.
    suspended: Option<u8>,
    waiting: Option<(u8, Due)>,
    claims: BTreeSet<u8>,
    /// In the order in which they were written.
    ended: Vec<(u8, End)>,
    deadline_passed: bool,
    // Engines and applications.
    /// What each attempt does next. Attempt 1 comes first.
    attempts: Vec<Position>,
    signallers: [Signaller; SIGNALLERS],
    // What the attempts have seen.
    /// The results of the step with which attempts went on.
    results: BTreeSet<u8>,
    /// What attempts received from their wait.
    received: BTreeSet<Answer>,
    /// An attempt that began after the step was recorded has run it.
    ran_again: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Answer {
    Signal(usize),
    TimedOut,
    /// Only without reading the row: a signal, but not the one that is stored.
    Unread,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Due {
    Now,
    AtDeadline,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum End {
    Suspended,
    Lost,
    Stopped,
}

/// The next statement of an attempt. The row of the wait itself is written like the
/// step, and left out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Position {
    Load {
        step_recorded: bool,
    },
    RunStep {
        step_recorded: bool,
    },
    /// The statement has checked that the attempt is held; the key decides next.
    InsertStep {
        held: bool,
    },
    AdoptStep,
    /// Read the signal and the time.
    Wait,
    SuspendLock,
    SuspendWrite,
    SuspendCommit(Due),
    TimeoutLock,
    TimeoutWrite,
    TimeoutCommit,
    Finish,
    Over,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Signaller {
    Idle,
    /// Only with an old snapshot: the suspension that the transaction sees.
    Begun(Option<u8>),
    Locked(Option<u8>),
    /// Written, not committed. `resumes`: the attempt whose suspension it ends.
    Written {
        reply: Reply,
        resumes: Option<u8>,
    },
    Committed(Reply),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Reply {
    Accepted,
    Duplicate,
    TimedOut,
    TaskEnded,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Event {
    DeadlinePasses,
    Claim,
    /// The attempt executes its next statement.
    Continue(u8),
    /// The engine dies in a transaction. Otherwise it dies by not continuing.
    RollBackAttempt(u8),
    /// The engine is declared lost. If it lives, it goes on. Recovery is one event:
    /// writers that meet its uncommitted rows wait for its commit.
    Recover(u8),
    Signal(usize),
    RollBackSignal(usize),
}

impl Model for Protocol {
    type State = State;
    type Action = Event;

    fn init_states(&self) -> Vec<State> {
        vec![State {
            step: Vec::new(),
            signal: None,
            suspended: None,
            waiting: Some((1, Due::Now)),
            claims: BTreeSet::new(),
            ended: Vec::new(),
            deadline_passed: false,
            attempts: Vec::new(),
            signallers: [Signaller::Idle; SIGNALLERS],
            results: BTreeSet::new(),
            received: BTreeSet::new(),
            ran_again: false,
        }]
    }

    fn actions(&self, state: &State, events: &mut Vec<Event>) {
        events.extend([Event::DeadlinePasses, Event::Claim]);
        for (attempt, position) in (1..).zip(&state.attempts) {
            if *position != Position::Over {
                events.push(Event::Continue(attempt));
            }
            if position.in_transaction() {
                events.push(Event::RollBackAttempt(attempt));
            }
        }
        events.extend(state.claims.iter().map(|attempt| Event::Recover(*attempt)));
        for (n, signaller) in state.signallers.iter().enumerate() {
            // Signallers are alike: the first begins first.
            if n == 0 || state.signallers[n - 1] != Signaller::Idle {
                events.push(Event::Signal(n));
            }
            if signaller.in_transaction() {
                events.push(Event::RollBackSignal(n));
            }
        }
    }

    fn next_state(&self, last: &State, event: Event) -> Option<State> {
        let mut state = last.clone();
        match event {
            Event::DeadlinePasses => state.deadline_passed = true,
            Event::Claim => {
                let (attempt, due) = state.waiting?;
                let is_due = due == Due::Now || state.deadline_passed;
                if !is_due || state.waiting_row_is_locked() {
                    return None;
                }
                state.waiting = None;
                state.claims.insert(attempt);
                let step_recorded = !state.step.is_empty();
                state.attempts.push(match attempt {
                    1 => Position::RunStep { step_recorded },
                    _ => Position::Load { step_recorded },
                });
            }
            Event::Continue(attempt) => {
                let position = self.continue_attempt(&mut state, attempt)?;
                state.attempts[usize::from(attempt) - 1] = position;
            }
            Event::RollBackAttempt(attempt) => {
                state.attempts[usize::from(attempt) - 1] = Position::Over;
            }
            Event::Recover(attempt) => {
                let position = state.attempts[usize::from(attempt) - 1];
                if matches!(position, Position::SuspendCommit(_)) {
                    return None; // It meets the key of the end, and waits.
                }
                state.end(attempt, End::Lost);
                state.waiting = Some((attempt + 1, Due::Now));
            }
            Event::Signal(n) => state.signallers[n] = self.continue_signal(&mut state, n)?,
            // The application may try again.
            Event::RollBackSignal(n) => state.signallers[n] = Signaller::Idle,
        }
        (state != *last).then_some(state)
    }

    fn within_boundary(&self, state: &State) -> bool {
        state.waiting.is_none_or(|(attempt, _)| attempt <= ATTEMPTS_MAX)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always("a task is waiting, held or ended", |_, state: &State| {
                let over = state.has_stopped();
                let states = [state.waiting.is_some(), !state.claims.is_empty(), over];
                states.into_iter().filter(|here| *here).count() == 1
            }),
            Property::always("an attempt ends once", |_, state: &State| {
                let attempts: BTreeSet<_> =
                    state.ended.iter().map(|(attempt, _)| attempt).collect();
                attempts.len() == state.ended.len()
            }),
            Property::always("a recorded step never changes", |_, state: &State| {
                state.step.len() < 2
            }),
            Property::always("a recorded step is not run again", |_, state: &State| {
                !state.ran_again
            }),
            Property::always("all attempts use the recorded result", |_, state: &State| {
                state.results.iter().all(|result| state.step == [*result])
            }),
            Property::always("all attempts receive the same", |_, state: &State| {
                state.received.len() < 2
            }),
            Property::always("a signal and a timeout never both win", |_, state: &State| {
                let accepted = state
                    .signallers
                    .iter()
                    .filter(|s| **s == Signaller::Committed(Reply::Accepted));
                let timed_out = state.received.contains(&Answer::TimedOut);
                accepted.count() + usize::from(timed_out) < 2
            }),
            Property::always("an accepted signal resumes the task", |_, state: &State| {
                let accepted = matches!(state.signal, Some(Answer::Signal(_)));
                !(accepted && state.waiting.is_some_and(|(_, due)| due == Due::AtDeadline))
            }),
            Property::sometimes("a suspended task is resumed by a signal", |_, state: &State| {
                state.ended == [(1, End::Suspended), (2, End::Stopped)]
                    && state.received == [Answer::Signal(0)].into()
            }),
            Property::sometimes("a suspended task times out", |_, state: &State| {
                state.ended == [(1, End::Suspended), (2, End::Stopped)]
                    && state.received == [Answer::TimedOut].into()
            }),
            Property::sometimes("a signal wins after the deadline", |_, state: &State| {
                // The second attempt found the task locked, and suspended again.
                state.ended == [(1, End::Suspended), (2, End::Suspended), (3, End::Stopped)]
                    && state.deadline_passed
                    && state.received == [Answer::Signal(0)].into()
            }),
            Property::sometimes("the step of a lost attempt is adopted", |_, state: &State| {
                state.ended == [(1, End::Lost), (2, End::Stopped)] && state.step == [1]
            }),
        ]
    }
}

impl Protocol {
    /// Executes the next statement of an attempt. `None`: it waits for a lock.
    fn continue_attempt(&self, state: &mut State, attempt: u8) -> Option<Position> {
        let held = state.claims.contains(&attempt);
        Some(match state.attempts[usize::from(attempt) - 1] {
            Position::Load { step_recorded } => match state.step.last() {
                Some(result) if self.0 != Rule::StepsNotLoaded => {
                    state.results.insert(*result);
                    Position::Wait
                }
                _ => Position::RunStep { step_recorded },
            },
            Position::RunStep { step_recorded } => {
                state.ran_again |= step_recorded;
                Position::InsertStep { held }
            }
            Position::InsertStep { held } => {
                let inserts = held && state.step.is_empty();
                if !inserts && self.0 != Rule::StepOverwrites {
                    return Some(Position::AdoptStep);
                }
                state.step.push(attempt);
                state.results.insert(attempt);
                Position::Wait
            }
            Position::AdoptStep => match state.step.last() {
                Some(_) if self.0 == Rule::StepNotAdopted => {
                    state.results.insert(attempt);
                    Position::Wait
                }
                Some(result) => {
                    state.results.insert(*result);
                    Position::Wait
                }
                None => Position::Over,
            },
            Position::Wait => match state.signal {
                Some(answer) => state.receive(answer),
                None if state.deadline_passed => Position::TimeoutLock,
                None => Position::SuspendLock,
            },
            Position::SuspendLock => {
                if self.0 != Rule::NoLockInSuspend && self.task_is_locked(state) {
                    // The attempt stays in its claim, and the engine asks again.
                    return None;
                }
                Position::SuspendWrite
            }
            Position::SuspendWrite => {
                let due = match state.signal {
                    Some(_) if self.0 != Rule::EarlySignalIgnored => Due::Now,
                    _ => Due::AtDeadline,
                };
                match held || self.0 == Rule::NoFence {
                    true => Position::SuspendCommit(due),
                    false => {
                        if self.0 == Rule::LateSuspensionWrites {
                            state.suspended = Some(attempt);
                        }
                        Position::Over
                    }
                }
            }
            Position::SuspendCommit(due) => {
                state.end(attempt, End::Suspended);
                state.waiting = Some((attempt + 1, due));
                if state.suspended.is_none() || self.0 != Rule::OldSuspensionKept {
                    state.suspended = Some(attempt);
                }
                Position::Over
            }
            Position::TimeoutLock => {
                if self.0 == Rule::TimeoutInMemory {
                    return Some(state.receive(Answer::TimedOut));
                }
                match self.task_is_locked(state) {
                    true => Position::SuspendLock,
                    false => Position::TimeoutWrite,
                }
            }
            Position::TimeoutWrite => match state.signal {
                _ if !held => Position::Over,
                Some(_) if self.0 == Rule::TimeoutConflictNotRead => state.receive(Answer::Unread),
                // The lock is older than this statement: the row is visible.
                Some(answer) => state.receive(answer),
                None if state.answer_is_uncommitted() => return None,
                None => Position::TimeoutCommit,
            },
            Position::TimeoutCommit => {
                state.signal = Some(Answer::TimedOut);
                state.receive(Answer::TimedOut)
            }
            Position::Finish => {
                if held {
                    state.end(attempt, End::Stopped);
                }
                Position::Over
            }
            Position::Over => return None,
        })
    }

    /// Executes the next statement of a signaller. `None`: it waits for a lock.
    fn continue_signal(&self, state: &mut State, n: usize) -> Option<Signaller> {
        Some(match state.signallers[n] {
            Signaller::Idle if self.0 == Rule::OldSnapshotInSignal => {
                Signaller::Begun(state.suspended)
            }
            Signaller::Idle | Signaller::Begun(_)
                if self.0 != Rule::NoLockInSignal && self.task_is_locked(state) =>
            {
                return None;
            }
            Signaller::Idle => Signaller::Locked(None),
            Signaller::Begun(suspended) => Signaller::Locked(suspended),
            Signaller::Locked(in_old_snapshot) => {
                let reply = match state.signal {
                    _ if state.has_stopped() => Reply::TaskEnded,
                    Some(Answer::TimedOut) => Reply::TimedOut,
                    Some(_) => Reply::Duplicate,
                    None if state.answer_is_uncommitted() => return None,
                    None => Reply::Accepted,
                };
                let suspended = match self.0 {
                    Rule::OldSnapshotInSignal => in_old_snapshot,
                    _ => state.suspended,
                };
                // The delete of the waiting row finds it, or a claim was first.
                let waits = |attempt: &u8| {
                    self.0 == Rule::SignalInsertsAlways
                        || state.waiting.is_some_and(|(next, _)| next == attempt + 1)
                };
                let resumes = suspended.filter(|_| reply == Reply::Accepted).filter(waits);
                Signaller::Written { reply, resumes }
            }
            Signaller::Written { reply, resumes } => {
                if reply == Reply::Accepted {
                    state.signal = Some(Answer::Signal(n));
                }
                if let Some(attempt) = resumes {
                    state.suspended = None;
                    state.waiting = Some((attempt + 1, Due::Now));
                }
                Signaller::Committed(reply)
            }
            Signaller::Committed(_) => return None,
        })
    }

    fn task_is_locked(&self, state: &State) -> bool {
        let by_attempt = state.attempts.iter().any(|position| match position {
            Position::SuspendWrite | Position::SuspendCommit(_) => self.0 != Rule::NoLockInSuspend,
            Position::TimeoutWrite | Position::TimeoutCommit => true,
            _ => false,
        });
        let by_signaller = self.0 != Rule::NoLockInSignal
            && state.signallers.iter().any(|signaller| signaller.in_transaction());
        by_attempt || by_signaller
    }
}

impl State {
    fn end(&mut self, attempt: u8, end: End) {
        self.ended.push((attempt, end));
        self.claims.remove(&attempt);
    }

    fn receive(&mut self, answer: Answer) -> Position {
        self.received.insert(answer);
        Position::Finish
    }

    fn has_stopped(&self) -> bool {
        self.ended.iter().any(|(_, end)| *end == End::Stopped)
    }

    /// A signal deletes and inserts the waiting row: claims skip it until the commit.
    fn waiting_row_is_locked(&self) -> bool {
        let locks = |s: &Signaller| matches!(s, Signaller::Written { resumes: Some(_), .. });
        self.signallers.iter().any(locks)
    }

    /// A transaction that is open holds the key of the signal: others wait for it.
    fn answer_is_uncommitted(&self) -> bool {
        let accepted = |s: &Signaller| matches!(s, Signaller::Written { reply, .. } if *reply == Reply::Accepted);
        self.signallers.iter().any(accepted) || self.attempts.contains(&Position::TimeoutCommit)
    }
}

impl Position {
    fn in_transaction(self) -> bool {
        matches!(
            self,
            Self::SuspendWrite | Self::SuspendCommit(_) | Self::TimeoutWrite | Self::TimeoutCommit
        )
    }
}

impl Signaller {
    /// The lock is taken with the first statement.
    fn in_transaction(self) -> bool {
        matches!(self, Self::Locked(_) | Self::Written { .. })
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
        (Rule::StepOverwrites, "a recorded step never changes"),
        (Rule::StepNotAdopted, "all attempts use the recorded result"),
        (Rule::StepsNotLoaded, "a recorded step is not run again"),
        (Rule::NoLockInSuspend, "an accepted signal resumes the task"),
        (Rule::NoLockInSignal, "an accepted signal resumes the task"),
        (Rule::OldSnapshotInSignal, "an accepted signal resumes the task"),
        (Rule::EarlySignalIgnored, "an accepted signal resumes the task"),
        (Rule::SignalInsertsAlways, "a task is waiting, held or ended"),
        (Rule::NoFence, "an attempt ends once"),
        (Rule::LateSuspensionWrites, "an accepted signal resumes the task"),
        (Rule::OldSuspensionKept, "an accepted signal resumes the task"),
        (Rule::TimeoutInMemory, "a signal and a timeout never both win"),
        (Rule::TimeoutInMemory, "all attempts receive the same"),
        (Rule::TimeoutConflictNotRead, "all attempts receive the same"),
    ] {
        let found = HasDiscoveries::AnyOf([promise].into());
        let checked = Protocol(rule).checker().threads(2).finish_when(found).spawn_bfs().join();
        assert!(checked.discovery(promise).is_some(), "{rule:?} does not break: {promise}");
    }
}
