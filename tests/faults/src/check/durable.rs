//! The promises about durable tasks: steps (I13), signals (I14), sleeps (I15) and children
//! (I16).

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use task_engine::{Json, Origin, Task as _, TaskId, TaskStatus};
use task_engine_core::step::TaskSteps;
use task_engine_store::export::TaskRecord;

use super::Evidence;
use crate::durable::{CHILDREN, Part, Process, SIGNAL, SLEEP, STEPS};
use crate::step_witness::{SignalLine, SignalState, StepEvent, StepLine};

/// What is known about durable tasks.
#[derive(Debug, Clone, Default)]
pub struct DurableEvidence {
    /// The lines of attempts.
    pub steps: Vec<StepLine>,
    /// The lines of senders of signals.
    pub signals: Vec<SignalLine>,
    /// The steps in the store, by task.
    pub stored: BTreeMap<i64, TaskSteps>,
}

pub(super) fn check_durable(evidence: &Evidence, broken: &mut Vec<String>) {
    let mut lines: BTreeMap<i64, Vec<&StepLine>> = BTreeMap::new();
    for line in &evidence.durable.steps {
        lines.entry(line.task).or_default().push(line);
    }
    for record in evidence.history.tasks.values() {
        let is_process = record.class == Process::CLASS;
        if !is_process && record.class != Part::CLASS {
            continue;
        }
        let lines = lines.get(&record.id).map(Vec::as_slice).unwrap_or_default();
        let task = DurableTask { evidence, record, lines };
        if record.status != TaskStatus::Stopped {
            broken
                .push(format!("I8: durable task {} is {}, not stopped", record.id, record.status));
        }
        task.check_steps(if is_process { &STEPS } else { &["work"] }, broken);
        if is_process {
            task.check_signal(broken);
            task.check_sleep(broken);
            task.check_children(broken);
        }
    }
}

/// One durable task.
struct DurableTask<'a> {
    evidence: &'a Evidence,
    record: &'a TaskRecord,
    lines: &'a [&'a StepLine],
}

impl<'a> DurableTask<'a> {
    fn of_attempt(&self, attempt: i32) -> impl Iterator<Item = &'a StepLine> {
        self.lines.iter().copied().filter(move |line| line.attempt == attempt)
    }

    /// The attempt that succeeded.
    fn last_attempt(&self) -> Option<i32> {
        let mut ends = self.record.executions.iter().filter(|e| e.ends_task.is_some());
        ends.next_back().map(|execution| execution.attempt)
    }

    fn stored(&self) -> Option<&'a TaskSteps> {
        self.evidence.durable.stored.get(&self.record.id)
    }

    fn stored_until(&self, name: &str) -> Option<Timestamp> {
        self.stored()?.steps.iter().find(|step| step.name == name)?.until
    }

    /// I13: a recorded step never changes and never runs again.
    fn check_steps(&self, names: &[&str], broken: &mut Vec<String>) {
        let id = self.record.id;
        for name in names {
            let mut say =
                |words: String| broken.push(format!("I13: step {name} of task {id} {words}"));
            let received: Vec<(&StepLine, &String)> = self.received(name).collect();
            let values: BTreeSet<&String> = received.iter().map(|(_, value)| *value).collect();
            if values.len() > 1 {
                say(format!("returned different values: {values:?}"));
            }
            for value in &values {
                let is_it = |line: &&StepLine| matches!(&line.event, StepEvent::CodeEnded { step, value: v } if step == name && v == *value);
                if !self.lines.iter().any(is_it) {
                    say(format!("returned {value}, which its code never did"));
                }
                if self.stored_value(name).as_ref() != Some(*value) {
                    say(format!("returned {value}, which is not recorded"));
                }
            }
            if !received.iter().any(|(line, _)| Some(line.attempt) == self.last_attempt()) {
                say("did not return in the last attempt".to_owned());
            }
            for line in self.repeated(name, &received) {
                say(format!("was received, and its code ran in a later attempt: {line:?}"));
            }
        }
    }

    fn received(&self, name: &str) -> impl Iterator<Item = (&'a StepLine, &'a String)> {
        self.lines.iter().copied().filter_map(move |line| match &line.event {
            StepEvent::Received { step, value } if step == name => Some((line, value)),
            _ => None,
        })
    }

    fn stored_value(&self, name: &str) -> Option<String> {
        let step = self.stored()?.steps.iter().find(|step| step.name == name)?;
        step.result.as_ref()?.decode().ok()
    }

    /// Starts of a step's code in attempts that were claimed, and began, after an attempt
    /// received the step. The code of an attempt that was claimed before may begin late: its
    /// engine was suspended beyond its lease and does not know it yet.
    fn repeated(
        &self,
        name: &str,
        received: &[(&StepLine, &String)],
    ) -> impl Iterator<Item = &'a StepLine> {
        let is_later = move |line: &StepLine| {
            let seen = self.evidence.witness.attempts.get(&(line.task, line.attempt));
            let began = seen.map_or(i64::MAX, |seen| seen.began);
            received.iter().any(|(got, _)| line.attempt > got.attempt && began > got.time_us)
        };
        self.lines.iter().copied().filter(move |line| {
            matches!(&line.event, StepEvent::CodeStarted { step } if step == name) && is_later(line)
        })
    }

    /// I14: an accepted signal is received, and no other.
    fn check_signal(&self, broken: &mut Vec<String>) {
        let id = self.record.id;
        let mut say = |words: String| broken.push(format!("I14: task {id} {words}"));
        let outcomes: Vec<(&StepLine, Option<&String>)> = self.outcomes().collect();
        let distinct: BTreeSet<Option<&String>> = outcomes.iter().map(|(_, p)| *p).collect();
        if distinct.len() > 1 {
            say(format!("received different signals: {distinct:?}"));
        }
        if !outcomes.iter().any(|(line, _)| Some(line.attempt) == self.last_attempt()) {
            say("ended without a signal and without a timeout".to_owned());
        }
        let sent = self.sent();
        let accepted = |state: &SignalState| *state == SignalState::Accepted;
        let all_accepted: Vec<&str> =
            sent.iter().filter(|(_, state)| accepted(state)).map(|(payload, _)| *payload).collect();
        if all_accepted.len() > 1 {
            say(format!("has several accepted signals: {all_accepted:?}"));
        }
        for payload in &distinct {
            if let (Some(accepted), false) =
                (all_accepted.first(), payload.is_some_and(|p| all_accepted.contains(&p.as_str())))
            {
                say(format!("received {payload:?}, and the signal {accepted:?} was accepted"));
            }
            let state = payload.map(|payload| sent.get(payload.as_str()));
            match state {
                None => self.check_deadline(&outcomes, &mut say),
                Some(None) => say(format!("received {payload:?}, which was never sent")),
                Some(Some(SignalState::Refused | SignalState::RolledBack)) => {
                    say(format!("received {payload:?}, which was refused or rolled back"));
                }
                Some(Some(_)) => {}
            }
        }
    }

    fn outcomes(&self) -> impl Iterator<Item = (&'a StepLine, Option<&'a String>)> {
        self.lines.iter().copied().filter_map(|line| match &line.event {
            StepEvent::Signal { payload } => Some((line, payload.as_ref())),
            _ => None,
        })
    }

    /// What was sent to this task, with the last that its sender knows about it.
    fn sent(&self) -> BTreeMap<&'a str, SignalState> {
        let signals = self.evidence.durable.signals.iter();
        let of_task = signals.filter(|line| line.task == self.record.id);
        of_task.map(|line| (line.payload.as_str(), line.state)).collect()
    }

    fn check_deadline(
        &self,
        outcomes: &[(&StepLine, Option<&String>)],
        say: &mut impl FnMut(String),
    ) {
        let until = self.stored_until(SIGNAL);
        for (line, _) in outcomes.iter().filter(|(_, payload)| payload.is_none()) {
            if until.is_none_or(|until| line.clock < until) {
                say(format!("timed out at {}, before its deadline {until:?}", line.clock));
            }
        }
    }

    /// I15: a sleep does not end early, and it ends.
    fn check_sleep(&self, broken: &mut Vec<String>) {
        let id = self.record.id;
        let mut say = |words: String| broken.push(format!("I15: task {id} {words}"));
        let until = self.stored_until(SLEEP);
        let slept = |line: &&&StepLine| line.event == StepEvent::Slept;
        for line in self.lines.iter().filter(slept) {
            if until.is_none_or(|until| line.clock < until) {
                say(format!("woke up at {}, before {until:?}", line.clock));
            }
        }
        if !self.lines.iter().filter(slept).any(|line| Some(line.attempt) == self.last_attempt()) {
            say("did not wake up in its last attempt".to_owned());
        }
    }

    /// I16: the children are created once, and the parent continues after all of them, with
    /// their results.
    fn check_children(&self, broken: &mut Vec<String>) {
        let id = self.record.id;
        let mut say = |words: String| broken.push(format!("I16: task {id} {words}"));
        let tasks = self.evidence.history.tasks.values();
        let children: Vec<&TaskRecord> = tasks
            .filter(|task| Origin::of(TaskId(task.id), &task.context).parent_id == Some(TaskId(id)))
            .collect();
        if children.len() != CHILDREN {
            say(format!("has {} children, not {CHILDREN}", children.len()));
        }
        let results: Vec<Option<u64>> = children.iter().map(|child| result(child)).collect();
        let sum = results.iter().flatten().sum::<u64>();
        if result(self.record) != Some(sum) {
            say(format!("has the result {:?}, and its children {results:?}", result(self.record)));
        }
        for attempt in self.record.executions.iter().map(|e| e.attempt) {
            for line in self.of_attempt(attempt) {
                let StepEvent::Children { results: received } = &line.event else { continue };
                let received: Vec<Option<u64>> = received.iter().copied().map(Some).collect();
                if received != results {
                    say(format!("received {received:?}, and its children have {results:?}"));
                }
                for child in children.iter().filter(|child| !self.ended_before(child, line.time_us))
                {
                    say(format!("continued before its child {} had ended", child.id));
                }
            }
        }
    }

    /// Whether the successful attempt of a child was over before this time.
    fn ended_before(&self, child: &TaskRecord, time: i64) -> bool {
        let success = child.executions.iter().find(|e| e.ends_task.is_some());
        let seen = success.and_then(|e| self.evidence.witness.attempts.get(&(child.id, e.attempt)));
        seen.and_then(|seen| seen.ended).is_some_and(|ended| ended <= time)
    }
}

/// The result of a task that has succeeded.
fn result(task: &TaskRecord) -> Option<u64> {
    let success = task.executions.iter().find(|e| e.ends_task.is_some())?;
    success.result.as_ref().map(Json::decode)?.ok()
}

#[cfg(test)]
mod tests;
