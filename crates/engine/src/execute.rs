//! One attempt: decode → run, guarded against panics, with its time limit and
//! its cancellation → outcome. It ends in the recorder's hands, whatever happens.

use std::future::{Future as _, poll_fn};
use std::pin::pin;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use crate::client::Client;
use task_engine_core::attempt::{Ending, NextState, Outcome, TaskError, transition};
use task_engine_core::attempt::{Ran, RetryAdvice};
use task_engine_core::cancel::{CancelReaction, CancelResponse};
use task_engine_core::claim::ClaimId;
use task_engine_core::display::span;
use task_engine_core::instance::InstanceId;
use task_engine_core::json::Json;
use task_engine_core::retry::DELAY_MAX;
use task_engine_core::retry::{RetryOverride, RetryRule};
use task_engine_core::secret::Redactor;
use task_engine_core::task::TaskStatus;
use task_engine_store::claim::ClaimedTask;
use tokio::sync::mpsc::UnboundedSender;
use tokio_util::sync::CancellationToken;
use tracing::Span;

use crate::complete::{Completing, not_committed};
use crate::failure::Failure;
use crate::figures::About;
use crate::handler::Class;
use crate::hook;
use crate::panic::{Guarded, guarded};
use crate::pools::Freed;
use crate::report::{Journal, Reports};
use crate::run::Run;
use crate::running::{Cause, Running};
use crate::settle::Unsettled;
use crate::trace;

/// An asynchronous task that is told to end has this long to do so by itself.
pub(crate) const GRACE: Duration = Duration::from_secs(1);

/// Everything that an attempt needs of its engine.
pub(crate) struct Bench<S> {
    pub(crate) state: Arc<S>,
    pub(crate) client: Client,
    pub(crate) instance: InstanceId,
    pub(crate) running: Arc<Running>,
    pub(crate) endings: UnboundedSender<(Ending, About)>,
    /// Endings of attempts that may have completed their tasks by themselves.
    pub(crate) unsettled: UnboundedSender<Unsettled>,
    /// Where the store has its tables.
    pub(crate) schema: Arc<str>,
    /// Numbers of workers that have become free.
    pub(crate) freed: Freed,
    pub(crate) reports: Arc<Reports>,
    /// Says that the engine must end now.
    pub(crate) forced: CancellationToken,
}

/// Runs one attempt on one worker.
pub(crate) async fn attempt<S: Send + Sync + 'static>(
    bench: Arc<Bench<S>>,
    class: Arc<Class<S>>,
    claim: ClaimId,
    task: ClaimedTask,
    worker: i32,
) {
    let token = CancellationToken::new();
    bench.running.begin(task.id, token.clone());
    let secrets = Redactor::of(&task.parameters, &task.context, &class.rules.secret);
    let journal = bench.reports.journal(task.id, secrets);
    let completing = Arc::new(Completing::new(claim, bench.schema.clone()));
    let span = trace::execution(&task, worker);
    let run = Run {
        state: bench.state.clone(),
        client: bench.client.clone(),
        id: task.id,
        retry_number: task.retry_number,
        class: class.name.clone(),
        context: task.context.clone(),
        worker,
        cancelled: token.clone(),
        journal: journal.clone(),
        completing: completing.clone(),
        traceparent: trace::of(&span).map(Box::new),
        on_demand: OnceLock::new(),
    };
    let ticket = Ticket {
        bench,
        class,
        claim,
        task,
        worker,
        journal,
        started: completing.began,
        completing,
        told: None,
        span,
        done: false,
    };
    tracing::info!(parent: &ticket.span, "Worker {worker} starting task {}", ticket.task.id.task_id);
    // By hand: wrapped into another future, everything would be moved once more.
    let (outcome, told) = match ticket.unreadable() {
        Some(outcome) => (outcome, None),
        None => {
            let mut work = pin!(ticket.work(run, token));
            poll_fn(|cx| ticket.span.in_scope(|| work.as_mut().poll(cx))).await
        }
    };
    ticket.end(outcome, told);
}

/// The duty to end an attempt. If the code of the task is torn down by force,
/// dropping this does it.
struct Ticket<S: Send + Sync + 'static> {
    bench: Arc<Bench<S>>,
    class: Arc<Class<S>>,
    claim: ClaimId,
    task: ClaimedTask,
    worker: i32,
    journal: Arc<Journal>,
    completing: Arc<Completing>,
    started: Instant,
    /// How its code took it that somebody wants it cancelled.
    told: Option<CancelResponse>,
    span: Span,
    done: bool,
}

impl<S: Send + Sync + 'static> Ticket<S> {
    /// The end of a task whose row cannot be read: another attempt would find the
    /// same.
    fn unreadable(&self) -> Option<Outcome> {
        let why = self.task.unreadable.as_ref()?;
        let message = format!("task {} cannot be read: {why}", self.task.id.task_id);
        let error = TaskError::new(TaskError::UNREADABLE_TASK, message);
        Some(Outcome::Failure(error, RetryAdvice::NoRetry))
    }

    async fn work(
        &self,
        run: Run<S>,
        token: CancellationToken,
    ) -> (Outcome, Option<CancelResponse>) {
        let mut working = Guarded::new(if self.class.hooks.is_empty() {
            self.class.work(&self.task.parameters, run)
        } else {
            hook::work(self.class.clone(), self.task.parameters.clone(), run)
        });
        let limit = self.class.timeout();
        let time_is_over = async {
            match limit {
                Some(limit) => tokio::time::sleep(limit).await,
                None => std::future::pending().await,
            }
        };
        let told_to_end = async {
            token.cancelled().await;
            tokio::select! {
                () = tokio::time::sleep(self.grace()) => {}
                () = self.bench.forced.cancelled() => {}
            }
        };
        let mut timed_out = false;
        let finished = tokio::select! {
            biased;
            finished = &mut working => Some(finished),
            () = time_is_over => { timed_out = true; None }
            () = told_to_end => None,
        };
        let finished = match finished {
            // A blocking task cannot be dropped: its worker waits for it, so
            // that no other attempt runs beside it. Only a stop of the whole
            // process goes on without it.
            None if self.class.blocking && !self.bench.forced.is_cancelled() => {
                token.cancel();
                tracing::warn!(
                    "Worker {} task {} does not end; it blocks its thread, so the worker waits for it",
                    self.worker,
                    self.task.id.task_id
                );
                tokio::select! {
                    finished = &mut working => Some(finished),
                    () = self.bench.forced.cancelled() => None,
                }
            }
            other => other,
        };
        // Asked once: a wish that comes from here on is too late.
        let why = self.bench.running.told(self.task.id);
        let told = why.filter(|told| told.why == Cause::Requested).map(|told| {
            let answer = match &finished {
                Some(Ok(Ok(_))) => CancelReaction::Ignored,
                Some(_) => CancelReaction::Acknowledged,
                None => CancelReaction::Killed,
            };
            CancelResponse { at: told.at, answer }
        });
        let outcome = match finished {
            Some(Ok(Ok(result))) => Outcome::Success(result),
            Some(_) | None if timed_out && !self.bench.forced.is_cancelled() => self.timeout(limit),
            Some(Ok(Err(failure))) => self.error(failure, why.map(|told| told.why)),
            Some(Err(panicked)) => panicked.into_failure().outcome(),
            None if told.is_some() => self.killed(),
            None => self.released(),
        };
        (outcome, told)
    }

    /// How long asynchronous code that was told to end has to do so by itself.
    fn grace(&self) -> Duration {
        let why = self.bench.running.told(self.task.id).map(|told| told.why);
        match (why, self.class.rules.cancel_grace) {
            (Some(Cause::Requested), Some(time)) => time,
            _ => GRACE,
        }
    }

    /// What an error means: that the code ended as it was told to, if it was.
    fn error(&self, failure: Failure, why: Option<Cause>) -> Outcome {
        match (why, failure.outcome()) {
            (Some(Cause::Requested), Outcome::Failure(error, _)) => {
                let message = format!("cancelled while it ran; its code returned {error}");
                let cancelled = TaskError::new(TaskError::CANCELLED, message);
                Outcome::Cancelled(cancelled.with_backtrace(error.backtrace))
            }
            (Some(Cause::Requested), Outcome::Snoozed(error, _)) => {
                let message = format!("cancelled while it ran; its code returned {error}");
                Outcome::Cancelled(TaskError::new(TaskError::CANCELLED, message))
            }
            // It says itself when it wants to go on, and no retry is used.
            (_, snoozed @ Outcome::Snoozed(..)) => snoozed,
            (Some(Cause::EngineStopped | Cause::InstanceLost), _) => self.released(),
            (_, outcome) => outcome,
        }
    }

    fn killed(&self) -> Outcome {
        let end = if self.bench.forced.is_cancelled() {
            "its engine stopped before its code had ended".to_owned()
        } else {
            format!(
                "its code had not ended {:?} after it was told to, and was dropped",
                self.grace()
            )
        };
        let message = format!("cancelled while it ran; {end}");
        Outcome::Cancelled(TaskError::new(TaskError::CANCELLED, message))
    }

    fn released(&self) -> Outcome {
        Outcome::Released(TaskError::new(
            TaskError::ENGINE_STOPPED,
            "the engine stopped before the task had finished",
        ))
    }

    fn timeout(&self, limit: Option<Duration>) -> Outcome {
        let limit = limit.unwrap_or_default();
        let error = TaskError::new("Timeout", format!("not finished after {limit:?}"));
        Outcome::Failure(error, Default::default())
    }

    fn end(mut self, outcome: Outcome, told: Option<CancelResponse>) {
        self.told = told;
        self.finish(outcome);
    }

    fn finish(&mut self, mut outcome: Outcome) {
        let span = self.span.clone();
        let _inside = span.enter();
        let lasted = self.started.elapsed();
        if let Outcome::Failure(error, _)
        | Outcome::Cancelled(error)
        | Outcome::Released(error)
        | Outcome::Snoozed(error, _)
        | Outcome::Lost(error) = &mut outcome
        {
            self.journal.secrets.error(error);
        }
        trace::ended(&self.span, &outcome);
        self.bench.running.end(self.task.id);
        self.journal.close();
        let about = About { class: self.class.number, due_at: self.task.due_at };
        // Channels outlive the engine's work.
        if self.completing.close() {
            let succeeded = matches!(outcome, Outcome::Success(_));
            // What holds if the completion turns out not to be on record.
            let outcome = if succeeded { not_committed() } else { outcome };
            let next = self.next(&outcome);
            let ending = self.ending(outcome, next, lasted);
            let _ = self.bench.unsettled.send(Unsettled { ending, about, succeeded });
        } else {
            let next = self.next(&outcome);
            self.log(&outcome, next, lasted);
            let _ = self.bench.endings.send((self.ending(outcome, next, lasted), about));
        }
        self.bench.freed.send(self.worker);
        self.done = true;
    }

    fn ending(&self, outcome: Outcome, next: NextState, lasted: Duration) -> Ending {
        let (result, error) = Ending::parts(outcome);
        Ending {
            id: self.task.id,
            retry_number: self.task.retry_number,
            claim_id: self.claim,
            instance_id: self.bench.instance,
            ran: Some(Ran { worker: Some(self.worker), lasted, ended: Instant::now() }),
            result,
            error,
            next,
            told: self.told,
        }
    }

    /// What comes next, by the rule of the class, the task, or the error.
    fn next(&self, outcome: &Outcome) -> NextState {
        let mut rule = self.class.rules.retry;
        match RetryOverride::of(&self.task.context) {
            Ok(task) => rule = rule.with(&task),
            Err(error) => tracing::warn!(
                "Task {}: the retry rule in its context is not used: {error}",
                self.task.id.task_id
            ),
        }
        let number = self.task.retry_number;
        if let (Some(function), Outcome::Failure(error, advice)) = (&self.class.retry, outcome)
            && *advice == Default::default()
        {
            match guarded(|| function(number, error)) {
                Ok(Some(after)) => {
                    let after = after.min(DELAY_MAX);
                    return NextState::Wait { after, retry_number: number + 1 };
                }
                Ok(None) => return NextState::End(TaskStatus::Failed),
                Err(_) => tracing::warn!(
                    "the retry rule of class {} panicked; its plain rule is used",
                    self.class.name
                ),
            }
        }
        transition(outcome, &rule, number, chance(&rule))
    }

    fn log(&self, outcome: &Outcome, next: NextState, lasted: Duration) {
        let (worker, id, ms) = (self.worker, self.task.id.task_id, lasted.as_millis());
        match outcome {
            Outcome::Success(_) => {
                tracing::info!("Worker {worker} finished task {id} in {ms} ms");
                return;
            }
            Outcome::Cancelled(_) => {
                tracing::info!("Worker {worker} task {id} was cancelled after {ms} ms");
            }
            Outcome::Released(_) => {
                tracing::info!("Worker {worker} gave task {id} back after {ms} ms");
            }
            Outcome::Snoozed(error, time) => {
                tracing::info!(
                    "Worker {worker} snoozed task {id} for {} after {ms} ms: {}",
                    span((*time).min(DELAY_MAX)),
                    error.message
                );
            }
            Outcome::Failure(error, _) | Outcome::Lost(error) => {
                tracing::info!("Worker {worker} failed task {id} in {ms} ms, error is {error}");
            }
        }
        match next {
            NextState::Wait { after, retry_number } if retry_number > self.task.retry_number => {
                tracing::info!(
                    "Worker {worker} task {id} will be retried in {:.0} s (retry {retry_number})",
                    after.as_secs_f64()
                );
            }
            NextState::End(TaskStatus::Failed) => {
                let why = why_not_retried(outcome, &self.class, &self.task.context);
                tracing::warn!(
                    "Worker {worker} task {id} has failed and will not be retried: {why}"
                );
            }
            _ => {}
        }
    }
}

impl<S: Send + Sync + 'static> Drop for Ticket<S> {
    fn drop(&mut self) {
        if self.done {
            return;
        }
        let outcome = if std::thread::panicking() {
            let error =
                TaskError::new("Panic", "the code of the task panicked while it was dropped");
            Outcome::Failure(error, Default::default())
        } else {
            self.released()
        };
        self.finish(outcome);
    }
}

/// Why a task that has failed is not tried again.
fn why_not_retried<S>(outcome: &Outcome, class: &Class<S>, context: &Json) -> String {
    let (own, name) = (RetryOverride::of(context).unwrap_or_default(), &class.name);
    match outcome {
        Outcome::Failure(error, RetryAdvice::NoRetry) => {
            format!("error {} is not retried", error.exception)
        }
        Outcome::Failure(_, RetryAdvice::ByRule) if class.retry.is_some() => {
            format!("the retry function of class {name} allows no other retry")
        }
        _ => match class.rules.retry.with(&own).maximum {
            0 if own.maximum.is_some() => "by its own rule, this task is not retried".to_owned(),
            0 => format!("class {name} is not retried"),
            maximum => format!("retries exhausted ({maximum} of {maximum})"),
        },
    }
}

fn chance(rule: &RetryRule) -> f64 {
    if rule.jitter > 0.0 { fastrand::f64() } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use task_engine_core::task::ClassRules;

    use super::*;
    use crate::handler::{Classes, NewClass};
    use crate::run::Run;

    #[test]
    fn log_tells_apart_why_nothing_is_retried() {
        let class = |rule| {
            let rules = ClassRules::default().retry(rule);
            let place = std::panic::Location::caller();
            let mut classes = Classes::new();
            let new = NewClass { name: "mail".to_owned(), rules, place };
            classes
                .add_async(new, |_: serde_json::Value, _: Run<()>| async { Ok::<_, Failure>(()) });
            classes.get("mail").unwrap().clone()
        };
        let error = TaskError::new("Closed", "at night");
        let by_rule = || Outcome::Failure(error.clone(), RetryAdvice::ByRule);
        let none = Json::empty_object();
        let never = Json::parse(r#"{"retry": {"maximum": 0}}"#).unwrap();
        for (outcome, rule, context, why) in [
            (by_rule(), RetryRule::times(3), &none, "retries exhausted (3 of 3)"),
            (by_rule(), RetryRule::never(), &none, "class mail is not retried"),
            (Outcome::Lost(error.clone()), RetryRule::never(), &none, "class mail is not retried"),
            (by_rule(), RetryRule::times(3), &never, "by its own rule, this task is not retried"),
            (
                Outcome::Failure(error.clone(), RetryAdvice::NoRetry),
                RetryRule::times(3),
                &none,
                "error Closed is not retried",
            ),
        ] {
            assert_eq!(why_not_retried(&outcome, &class(rule), context), why);
        }
        let mut classes = Classes::new();
        let (name, place) = ("mail".to_owned(), std::panic::Location::caller());
        let new = NewClass { name: name.clone(), rules: ClassRules::default(), place };
        classes.add_async(new, |_: serde_json::Value, _: Run<()>| async { Ok::<_, Failure>(()) });
        classes.retry(&[(name, Arc::new(|_, _| None))]);
        let why = why_not_retried(&by_rule(), classes.get("mail").unwrap(), &none);
        assert_eq!(why, "the retry function of class mail allows no other retry");
    }
}
