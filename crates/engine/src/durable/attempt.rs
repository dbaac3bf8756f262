//! The durable calls of one attempt. Each returns what the handler gets, or the end of the
//! attempt as an error: a suspension, or why the call is impossible. [`Context`] turns such
//! an error into the end of the attempt; executables handle it themselves.
//!
//! [`Context`]: crate::Context

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use task_engine_core::display::count;
use task_engine_core::json::Json;
use task_engine_core::retry::DELAY_MAX;
use task_engine_core::step::{
    AWAITED, CHILDREN_MAX, ChildOutcome, NewCall, NewStep, SignalRow, StepContent, StepKind,
    StepOutcome, StepRow, WaitOutcome, ended_name, has_kept_steps,
};
use task_engine_core::task::{NewTask, TaskId};
use task_engine_store::error::StoreError;
use tokio::sync::OnceCell;

use super::replay::Replay;
use crate::context::Context;
use crate::failure::Failure;

/// What an attempt knows about the steps of its task.
#[derive(Debug, Default)]
pub(crate) struct AttemptSteps {
    replay: Mutex<Replay>,
    loaded: OnceCell<()>,
    suspension: Mutex<Option<SuspendRequest>>,
}

/// What a suspended task waits for, besides the time.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct SuspendRequest {
    pub(crate) until: Option<Timestamp>,
    pub(crate) signals: Vec<String>,
    pub(crate) children_from: Option<TaskId>,
}

impl AttemptSteps {
    fn replay(&self) -> MutexGuard<'_, Replay> {
        self.replay.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn has_recorded(&self) -> bool {
        self.replay().has_recorded()
    }

    /// What the attempt ends with if it is suspended.
    pub(crate) fn take_suspension(&self) -> Option<SuspendRequest> {
        self.suspension.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// The end of an attempt whose task waits.
    fn suspend(&self, request: SuspendRequest, time: Duration, reason: String) -> Failure {
        *self.suspension.lock().unwrap_or_else(PoisonError::into_inner) = Some(request);
        Failure::snooze_because(time.min(DELAY_MAX), reason)
    }
}

tokio::task_local! {
    /// The step whose code is running.
    pub(super) static CURRENT_STEP: String;
}

/// A step that has to run, or the result of one that is recorded.
pub(crate) enum StepState {
    /// Run its code, then record the result under this name.
    Run(String),
    /// Its result.
    Recorded(String, Json),
}

impl<S> Context<S> {
    fn steps(&self) -> &AttemptSteps {
        self.handle.steps()
    }

    /// Loads what is recorded about the task. A first attempt has nothing to load.
    async fn load_steps(&self) -> Result<(), Failure> {
        let steps = self.steps();
        let load = || async {
            if self.id.attempt > 1 || has_kept_steps(&self.context) {
                self.reload_steps().await?;
            }
            Ok(())
        };
        steps.loaded.get_or_try_init(load).await.copied()
    }

    async fn reload_steps(&self) -> Result<(), Failure> {
        let stored = self.handle.session.store.steps(self.id.task_id).await;
        let stored = stored.map_err(|error| store_failure("the steps cannot be read", &error))?;
        self.steps().replay().load(stored, self.id.attempt);
        Ok(())
    }

    /// Before every durable call: the recorded step of this name, or its full name.
    async fn begin_step(
        &self,
        name: &str,
        kind: StepKind,
    ) -> Result<(String, Option<StepRow>), Failure> {
        refuse_inside_step(kind, name)?;
        self.load_steps().await?;
        let mut replay = self.steps().replay();
        let name = replay.next_name(name)?;
        let found = replay.find(&name, kind)?;
        if let Some(step) = &found
            && let Some(warning) = replay.order_warning(step)
        {
            drop(replay);
            tracing::warn!("{}: {warning}", self.id);
            self.log_at(task_engine_core::progress::LogLevel::Warn, warning);
        }
        Ok((name, found))
    }

    /// Records a step. Returns it, or the one that is recorded already under its name.
    async fn record_step(
        &self,
        name: &str,
        content: StepContent,
        lasted: Duration,
    ) -> Result<StepRow, Failure> {
        let result = content.result().map(std::borrow::Cow::into_owned);
        let bytes = result.as_ref().map_or(0, |result| result.as_str().len());
        let number = self.steps().replay().next_number(name, bytes)?;
        let kind = content.kind();
        let step = NewStep {
            id: self.id,
            claim_id: self.handle.claim,
            name: name.to_owned(),
            number,
            content,
            lasted,
        };
        match self.handle.session.record(step).await {
            Ok(StepOutcome::Recorded { now, until, signal, .. }) => {
                let started_at = now.saturating_sub(lasted).unwrap_or(now);
                let row = StepRow {
                    name: name.to_owned(),
                    number,
                    kind,
                    attempt: self.id.attempt,
                    result,
                    until,
                    started_at,
                    recorded_at: now,
                };
                self.steps().replay().recorded(row.clone(), signal);
                Ok(row)
            }
            Ok(StepOutcome::Exists) => self.adopt(name, kind).await,
            Ok(StepOutcome::AttemptOver) => Err(self.attempt_over(kind, name)),
            Err(StoreError::InvalidData(why)) => {
                let message = format!("the result of step {name:?} cannot be stored: {why}");
                Err(Failure::no_retry(Failure::named("StepNotStorable", message)))
            }
            Err(error) => {
                Err(store_failure(&format!("{kind} {name:?} could not be recorded"), &error))
            }
        }
    }

    /// Another attempt has recorded a step of this name meanwhile: its result counts.
    async fn adopt(&self, name: &str, kind: StepKind) -> Result<StepRow, Failure> {
        self.reload_steps().await?;
        let found = self.steps().replay().find(name, kind)?;
        found.ok_or_else(|| self.attempt_over(kind, name))
    }

    fn attempt_over(&self, kind: StepKind, name: &str) -> Failure {
        let message = format!(
            "{kind} {name:?} was not recorded: {} has been ended by recovery, and another attempt may run",
            self.id
        );
        Failure::named("AttemptOver", message)
    }

    /// A step before its code runs.
    pub(crate) async fn enter_step(&self, name: &str) -> Result<StepState, Failure> {
        let (name, found) = self.begin_step(name, StepKind::Step).await?;
        match found {
            Some(step) => Ok(StepState::Recorded(name, step.result.unwrap_or_else(Json::null))),
            None => match self.handle.session.injected_failures.take(&name) {
                Some(failure) => Err(failure),
                None => Ok(StepState::Run(name)),
            },
        }
    }

    /// Records the result of a step. Returns another one if that was recorded before.
    pub(crate) async fn leave_step(
        &self,
        name: &str,
        result: Json,
        lasted: Duration,
    ) -> Result<Option<Json>, Failure> {
        let attempt = self.id.attempt;
        let row = self.record_step(name, StepContent::Value(result), lasted).await?;
        Ok(if row.attempt == attempt { None } else { row.result })
    }

    /// The recorded step of this name, if there is one. Otherwise the name stays unused.
    pub(crate) async fn find_step(&self, name: &str) -> Result<Option<(String, Json)>, Failure> {
        refuse_inside_step(StepKind::Step, name)?;
        self.load_steps().await?;
        let mut replay = self.steps().replay();
        let full = replay.peek_name(name)?;
        let Some(step) = replay.find(&full, StepKind::Step)? else {
            return Ok(None);
        };
        replay.next_name(name)?;
        Ok(Some((full, step.result.unwrap_or_else(Json::null))))
    }

    /// A step that is recorded in a transaction of the application.
    pub(crate) fn step_for_transaction(
        &self,
        name: &str,
        result: Json,
        lasted: Duration,
    ) -> Result<NewStep, Failure> {
        refuse_inside_step(StepKind::Step, name)?;
        let mut replay = self.steps().replay();
        let name = replay.next_name(name)?;
        let number = replay.next_number(&name, result.as_str().len())?;
        let (id, claim_id) = (self.id, self.handle.claim);
        Ok(NewStep { id, claim_id, name, number, content: StepContent::Value(result), lasted })
    }

    /// Returns when the sleep is over; an error if the task must be suspended until then.
    pub(crate) async fn sleep_or_suspend(
        &self,
        name: &str,
        content: StepContent,
    ) -> Result<(), Failure> {
        let (name, found) = self.begin_step(name, StepKind::Sleep).await?;
        let step = match found {
            Some(step) => step,
            None => self.record_step(&name, content, Duration::ZERO).await?,
        };
        let Some(until) = step.until else { return Ok(()) };
        let remaining = {
            let replay = self.steps().replay();
            if replay.went_on_after(&step) {
                return Ok(());
            }
            replay.remaining(until)
        };
        if remaining <= self.handle.session.in_place_max {
            tokio::time::sleep(remaining).await;
            return Ok(());
        }
        let reason = format!("sleeping until {until} ({name})");
        let request = SuspendRequest { until: Some(until), ..SuspendRequest::default() };
        Err(self.steps().suspend(request, remaining, reason))
    }

    /// The signal, or the timeout, of a wait; an error if the task must be suspended.
    pub(crate) async fn wait_or_suspend(
        &self,
        name: &str,
        timeout: Duration,
    ) -> Result<SignalRow, Failure> {
        let (name, found) = self.begin_step(name, StepKind::Wait).await?;
        let step = match found {
            Some(step) => step,
            None => {
                let content = StepContent::Wait(timeout.min(DELAY_MAX));
                self.record_step(&name, content, Duration::ZERO).await?
            }
        };
        let until = step.until.unwrap_or(Timestamp::MAX);
        let remaining = {
            let replay = self.steps().replay();
            if let Some(signal) = replay.signal(&name) {
                return Ok(signal);
            }
            replay.remaining(until)
        };
        if remaining.is_zero() {
            let store = &self.handle.session.store;
            match store.time_out(self.id, self.handle.claim, &name).await {
                Ok(WaitOutcome::Decided(signal)) => {
                    self.steps().replay().decided(signal.clone());
                    return Ok(signal);
                }
                Ok(WaitOutcome::AttemptOver) => {
                    return Err(self.attempt_over(StepKind::Wait, &name));
                }
                // A transaction that sends the signal is open: the suspension waits for it.
                Ok(WaitOutcome::Open) => {}
                Err(error) => {
                    let what = format!("the wait for signal {name:?} could not be decided");
                    return Err(store_failure(&what, &error));
                }
            }
        }
        let reason = format!("waiting for signal {name} until {until}");
        let request =
            SuspendRequest { until: Some(until), signals: vec![name], children_from: None };
        Err(self.steps().suspend(request, remaining, reason))
    }

    /// How all children ended; an error if the task must be suspended until then.
    pub(crate) async fn call_or_suspend(
        &self,
        name: &str,
        children: impl FnOnce() -> Result<Vec<NewTask>, Failure>,
    ) -> Result<Vec<ChildOutcome>, Failure> {
        let (name, found) = self.begin_step(name, StepKind::Call).await?;
        let (ids, are_new) = match found {
            Some(step) => (step.children(), false),
            None => (self.create_children(&name, children()?).await?, true),
        };
        // New children have not ended. If all of them existed and have ended, the suspension
        // makes the task due at once.
        if (!are_new || ids.is_empty())
            && let Some(outcomes) = self.ended_children(&name, &ids).await?
        {
            return Ok(outcomes);
        }
        let reason = format!("waiting for {} ({name})", count(ids.len(), "child task"));
        let children_from = ids.iter().min().copied();
        let request = SuspendRequest { children_from, ..SuspendRequest::default() };
        Err(self.steps().suspend(request, DELAY_MAX, reason))
    }

    /// How the children of a call ended, as recorded, or recorded now; `None` if one has not
    /// ended.
    async fn ended_children(
        &self,
        name: &str,
        ids: &[TaskId],
    ) -> Result<Option<Vec<ChildOutcome>>, Failure> {
        let ended = self.steps().replay().find(&ended_name(name), StepKind::Call)?;
        let attempts: Option<Vec<i32>> =
            ended.and_then(|step| step.result).and_then(|result| result.decode().ok());
        let Some(outcomes) = self.child_outcomes(ids, attempts.as_deref()).await? else {
            return Ok(None);
        };
        if attempts.is_some() {
            return Ok(Some(outcomes));
        }
        let attempts = outcomes.iter().map(|outcome| outcome.attempt).collect();
        let content = StepContent::ChildrenEnded(attempts);
        let row = self.record_step(&ended_name(name), content, Duration::ZERO).await?;
        if row.attempt == self.id.attempt {
            return Ok(Some(outcomes));
        }
        // Another attempt has recorded them before.
        let attempts: Vec<i32> =
            row.result.and_then(|result| result.decode().ok()).unwrap_or_default();
        Ok(self.child_outcomes(ids, Some(&attempts)).await?.or(Some(outcomes)))
    }

    /// The outcomes of children; `None` if one has not ended.
    async fn child_outcomes(
        &self,
        ids: &[TaskId],
        attempts: Option<&[i32]>,
    ) -> Result<Option<Vec<ChildOutcome>>, Failure> {
        let attempt = |nth: usize| attempts.and_then(|attempts| attempts.get(nth).copied());
        let children: Vec<_> = ids.iter().enumerate().map(|(n, id)| (*id, attempt(n))).collect();
        let outcomes = self.handle.session.store.child_outcomes(&children).await;
        let outcomes =
            outcomes.map_err(|error| store_failure("the child tasks cannot be read", &error))?;
        Ok(outcomes.into_iter().collect())
    }

    async fn create_children(
        &self,
        name: &str,
        children: Vec<NewTask>,
    ) -> Result<Vec<TaskId>, Failure> {
        if children.len() > CHILDREN_MAX {
            let message = format!(
                "call {name:?} has {} children (at most {CHILDREN_MAX}); call them in several parts",
                children.len()
            );
            return Err(Failure::no_retry(Failure::named("TooManyChildren", message)));
        }
        let not_created = |error: String| {
            let message = format!("the child tasks of call {name:?} were not created: {error}");
            Failure::named("ChildrenNotCreated", message)
        };
        let mut children =
            self.tasks().prepare(children).map_err(|error| not_created(error.to_string()))?;
        for child in &mut children {
            child.add_context(AWAITED, &true).map_err(|error| not_created(error.to_string()))?;
        }
        let number = self.steps().replay().next_number(name, children.len() * 20)?;
        let (id, claim_id) = (self.id, self.handle.claim);
        let call = NewCall { id, claim_id, name: name.to_owned(), number, children };
        match self.handle.session.store.record_call(&call).await {
            Ok(StepOutcome::Recorded { now, children, .. }) => {
                let row = StepRow {
                    name: name.to_owned(),
                    number,
                    kind: StepKind::Call,
                    attempt: id.attempt,
                    result: Json::encode(&children).ok(),
                    until: None,
                    started_at: now,
                    recorded_at: now,
                };
                self.steps().replay().recorded(row, None);
                Ok(children)
            }
            Ok(StepOutcome::Exists) => Ok(self.adopt(name, StepKind::Call).await?.children()),
            Ok(StepOutcome::AttemptOver) => Err(self.attempt_over(StepKind::Call, name)),
            Err(error) => Err(not_created(error.to_string())),
        }
    }
}

/// A step cannot contain other durable calls: they would not be called when the step is
/// recorded.
fn refuse_inside_step(kind: StepKind, name: &str) -> Result<(), Failure> {
    let Ok(outer) = CURRENT_STEP.try_with(Clone::clone) else {
        return Ok(());
    };
    let message = format!(
        "{kind} {name:?} was called inside step {outer:?}; a step cannot contain other steps, sleeps, waits or calls: call them one after the other"
    );
    Err(Failure::no_retry(Failure::named("StepInsideStep", message)))
}

/// A failure of the store. It is retried by the rule.
pub(crate) fn store_failure(what: &str, error: &StoreError) -> Failure {
    Failure::named("StoreError", format!("{what}: {error}"))
}

/// A stored value that the code can no longer read.
pub(crate) fn not_decodable(what: &str, error: &serde_json::Error) -> Failure {
    let message = format!(
        "{what} cannot be read as the type that the code expects now: {error}; read both forms, or give the step another name"
    );
    Failure::no_retry(Failure::named("StepNotDecodable", message))
}
