//! Executes one attempt: decodes the parameters, runs the handler with its time
//! limit and its cancellation, guarded against panics, and hands the end of the
//! attempt to the recorder. The end is always handed over: [`AttemptGuard`].

use std::future::{Future as _, poll_fn};
use std::pin::pin;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use task_engine_core::attempt::{
    AttemptEnd, AttemptRecord, InterruptCause, Interruption, NextState, RetryAdvice, RetryPolicy,
    RunSpan, TaskError, decide_end,
};
use task_engine_core::cancel::CancelResponse;
use task_engine_core::claim::ClaimId;
use task_engine_core::display::span;
use task_engine_core::instance::InstanceId;
use task_engine_core::json::Json;
use task_engine_core::retry::{DELAY_MAX, RetryOverride, RetryRule};
use task_engine_core::secret::Redactor;
use task_engine_core::step::{Suspension, is_awaited, retry_number_after};
use task_engine_core::task::TaskStatus;
use task_engine_store::claim::ClaimedTask;
use tokio::sync::mpsc::UnboundedSender;
use tokio_util::sync::CancellationToken;
use tracing::Span;

use crate::attempt_handle::AttemptHandle;
use crate::classes::Class;
use crate::context::Context;
use crate::durable::{SessionHandle, SuspendRequest};
use crate::hook;
use crate::limits;
use crate::panic::{Guarded, guarded};
use crate::pools::FreeWorkers;
use crate::progress::{AttemptReporter, ReportWriter};
use crate::rollup::EndingLabels;
use crate::running::RunningAttempts;
use crate::settle::{PendingCompletion, PendingEnding};
use crate::tasks::TaskEngine;
use crate::trace;

/// How long asynchronous code that was asked to end has to do so by itself.
pub(crate) const GRACE: Duration = Duration::from_secs(1);

/// What attempts need of their engine.
pub(crate) struct AttemptContext<S> {
    pub(crate) state: Arc<S>,
    pub(crate) tasks: TaskEngine,
    pub(crate) instance: InstanceId,
    pub(crate) running: Arc<RunningAttempts>,
    pub(crate) endings: UnboundedSender<(AttemptRecord, EndingLabels)>,
    /// Endings that depend on transactions of the application.
    pub(crate) pending: UnboundedSender<PendingEnding>,
    pub(crate) session: Arc<SessionHandle>,
    pub(crate) free_workers: FreeWorkers,
    pub(crate) reports: Arc<ReportWriter>,
    /// Cancelled when the engine must end now.
    pub(crate) forced: CancellationToken,
}

/// Runs one attempt on one worker.
pub(crate) async fn attempt<S: Send + Sync + 'static>(
    context: Arc<AttemptContext<S>>,
    class: Arc<Class<S>>,
    claim: ClaimId,
    task: ClaimedTask,
    worker: i32,
) {
    let token = CancellationToken::new();
    context.running.begin(task.id, token.clone());
    let secrets = Redactor::of(&task.parameters, &task.context, &class.options.secret);
    let reporter = context.reports.reporter(task.id, secrets);
    let session = context.session.clone();
    let handle = Arc::new(AttemptHandle::new(task.id, claim, worker, class.blocking, session));
    let span = trace::execution(&task, worker);
    let cx = Context {
        state: context.state.clone(),
        tasks: context.tasks.clone(),
        id: task.id,
        retry_number: task.retry_number,
        class: class.name.clone(),
        context: task.context.clone(),
        worker,
        cancelled: token.clone(),
        reporter: reporter.clone(),
        handle: handle.clone(),
        traceparent: trace::traceparent(&span).map(Box::new),
        on_demand: OnceLock::new(),
    };
    let guard = AttemptGuard {
        context,
        class,
        claim,
        task,
        worker,
        reporter,
        handle,
        cancel_response: None,
        span,
        done: false,
    };
    if let Some(why) = limits::too_late(guard.task.limited.as_deref()) {
        return guard.finish(AttemptEnd::never_started(why), None);
    }
    tracing::info!(parent: &guard.span, "Worker {worker} starting task {}", guard.task.id.task_id);
    let (end, cancel_response) = match &guard.task.unreadable {
        Some(why) => (AttemptEnd::unreadable(guard.task.id.task_id, why), None),
        None => {
            // Polled by hand: `Instrument` would move the whole future once more.
            let mut work = pin!(guard.work(cx, token));
            poll_fn(|cx| guard.span.in_scope(|| work.as_mut().poll(cx))).await
        }
    };
    guard.finish(end, cancel_response);
}

/// Makes sure that an attempt is ended. If the future of the attempt is dropped,
/// because the runtime shuts down, dropping the guard ends it.
struct AttemptGuard<S: Send + Sync + 'static> {
    context: Arc<AttemptContext<S>>,
    class: Arc<Class<S>>,
    claim: ClaimId,
    task: ClaimedTask,
    worker: i32,
    reporter: Arc<AttemptReporter>,
    handle: Arc<AttemptHandle>,
    /// How the code reacted to a cancel request.
    cancel_response: Option<CancelResponse>,
    span: Span,
    done: bool,
}

impl<S: Send + Sync + 'static> AttemptGuard<S> {
    /// Runs the handler until it returns or must be dropped.
    async fn work(
        &self,
        cx: Context<S>,
        token: CancellationToken,
    ) -> (AttemptEnd, Option<CancelResponse>) {
        let mut handler = Guarded::new(if self.class.hooks.is_empty() {
            self.class.call(&self.task.parameters, cx)
        } else {
            hook::call_with_hooks(self.class.clone(), self.task.parameters.clone(), cx)
        });
        let limit = self.class.timeout();
        let time_limit = async {
            match limit {
                Some(limit) => tokio::time::sleep(limit).await,
                None => std::future::pending().await,
            }
        };
        let grace_over = async {
            token.cancelled().await;
            tokio::select! {
                () = tokio::time::sleep(self.grace()) => {}
                () = self.context.forced.cancelled() => {}
            }
        };
        let mut timed_out = false;
        let returned = tokio::select! {
            biased;
            returned = &mut handler => Some(returned),
            () = time_limit => { timed_out = true; None }
            () = grace_over => None,
        };
        let returned = match returned {
            // A blocking handler cannot be dropped. Its worker waits for it, so
            // that no other attempt runs at the same time. Only a forced stop of
            // the whole process goes on without it.
            None if self.class.blocking && !self.context.forced.is_cancelled() => {
                token.cancel();
                tracing::warn!(
                    "Worker {} waits for task {}: it was asked to end, but blocks its thread",
                    self.worker,
                    self.task.id.task_id
                );
                tokio::select! {
                    returned = &mut handler => Some(returned),
                    () = self.context.forced.cancelled() => None,
                }
            }
            returned => returned,
        };
        if let Some(Ok(Err(failure))) = &returned
            && let Some(time) = failure.rate_limited_for()
        {
            // Boxed: it is rare, and the future of every attempt would be larger.
            Box::pin(self.close_limit_keys(time, failure.message())).await;
        }
        // Read once: a cancel request that arrives from here on is too late.
        let interrupt = self.context.running.interrupt(self.task.id);
        let during = Interruption {
            cause: interrupt.map(|interrupt| interrupt.cause),
            timed_out_after: limit.filter(|_| timed_out),
            grace: self.grace(),
            forced_stop: self.context.forced.is_cancelled(),
        };
        let code = returned.map(|returned| match returned {
            Ok(Ok(result)) => AttemptEnd::Success(result),
            Ok(Err(failure)) => failure.into_end(),
            Err(panicked) => panicked.into_failure().into_end(),
        });
        let (end, reaction) = AttemptEnd::of_code(code, &during);
        let response = interrupt.zip(reaction);
        let response = response
            .map(|(interrupt, reaction)| CancelResponse { delivered: interrupt.at, reaction });
        (end, response)
    }

    /// Closes the keys of its limits before the end is recorded: when the task waits, no other
    /// attempt of its keys starts.
    async fn close_limit_keys(&self, time: Duration, reason: &str) {
        let Some(limited) = &self.task.limited else { return };
        let reason = self.reporter.secrets.text(reason);
        let store = self.context.tasks.store();
        tokio::select! {
            () = limits::close_keys(&**store, limited, time, &reason) => {}
            () = self.context.forced.cancelled() => {}
        }
    }

    /// How long asynchronous code that was asked to end has to do so by itself.
    fn grace(&self) -> Duration {
        let cause = self.context.running.interrupt(self.task.id).map(|interrupt| interrupt.cause);
        match (cause, self.class.options.cancel_grace) {
            (Some(InterruptCause::CancelRequested), Some(time)) => time,
            _ => GRACE,
        }
    }

    fn finish(mut self, end: AttemptEnd, cancel_response: Option<CancelResponse>) {
        self.cancel_response = cancel_response;
        self.hand_over(end);
    }

    fn hand_over(&mut self, mut end: AttemptEnd) {
        let span = self.span.clone();
        let _inside = span.enter();
        let lasted = self.handle.began.elapsed();
        if let Some(error) = end.error_mut() {
            self.reporter.secrets.error(error);
        }
        trace::ended(&self.span, &end);
        self.context.running.end(self.task.id);
        self.reporter.close();
        let awaited = is_awaited(&self.task.context);
        let labels = EndingLabels {
            class: self.class.number,
            due_at: self.task.due_at,
            awaited,
            limited: self.task.limited.is_some(),
        };
        // The channels outlive all attempts.
        let may_have_completed = self.handle.completing.close();
        let suspension = self.suspension(&end);
        if may_have_completed {
            let replaced = matches!(end, AttemptEnd::Success(_)) || suspension.is_some();
            let succeeded = matches!(end, AttemptEnd::Success(_));
            // What counts if the completion turns out not to be committed.
            let end = if replaced { AttemptEnd::not_committed() } else { end };
            let next = self.decide_next(&end);
            let ending = self.ending(end, next, lasted);
            let pending = PendingCompletion { ending, labels, succeeded };
            let _ = self.context.pending.send(PendingEnding::Completion(Box::new(pending)));
        } else if let Some(request) = suspension {
            let next = self.decide_next(&end);
            self.log(&end, next, lasted);
            let SuspendRequest { until, signals, children_from } = request;
            let record = self.ending(end, next, lasted);
            let suspension = Suspension { record, until, signals, children_from };
            let pending = PendingEnding::Suspension(Box::new(suspension), labels);
            let _ = self.context.pending.send(pending);
        } else {
            let next = self.decide_next(&end);
            self.log(&end, next, lasted);
            let _ = self.context.endings.send((self.ending(end, next, lasted), labels));
        }
        self.context.free_workers.send(self.worker);
        self.done = true;
    }

    fn ending(&self, end: AttemptEnd, next: NextState, lasted: Duration) -> AttemptRecord {
        let run = RunSpan { worker: Some(self.worker), lasted, ended: Instant::now() };
        let ran = end.has_started().then_some(run);
        let (result, error) = end.into_parts();
        AttemptRecord {
            id: self.task.id,
            retry_number: self.task.retry_number,
            claim_id: self.claim,
            instance_id: self.context.instance,
            ran,
            result,
            error,
            next,
            cancel_response: self.cancel_response,
        }
    }

    /// What the task waits for besides the time, if the attempt ends because of that.
    fn suspension(&self, end: &AttemptEnd) -> Option<SuspendRequest> {
        let request = self.handle.used_steps()?.take_suspension()?;
        let wakes = !request.signals.is_empty() || request.children_from.is_some();
        (matches!(end, AttemptEnd::Snoozed(..)) && wakes).then_some(request)
    }

    /// What follows, with the retry rule of the class, the task and the engine.
    fn decide_next(&self, end: &AttemptEnd) -> NextState {
        let mut rule = self.class.options.retry;
        match RetryOverride::of(&self.task.context) {
            Ok(task) => rule = rule.with(&task),
            Err(error) => tracing::warn!(
                "Task {}: ignoring the retry rule in its context: {error}",
                self.task.id.task_id
            ),
        }
        let number = self.retry_number(&rule);
        let chance = chance(&rule);
        let function = self.class.retry.as_ref().map(|function| {
            move |error: &TaskError| {
                guarded(|| function(number, error)).unwrap_or_else(|_| {
                    tracing::warn!(
                        "the retry function of class {} panicked; using the rule of the class",
                        self.class.name
                    );
                    rule.delay(number, chance)
                })
            }
        });
        let function = function.as_ref().map(|function| function as &dyn Fn(&TaskError) -> _);
        decide_end(end, self.task.id.attempt, number, &RetryPolicy { rule, function, chance })
    }

    /// Retries are counted anew after an attempt that recorded a step.
    fn retry_number(&self, rule: &RetryRule) -> u32 {
        let progress = self.handle.has_recorded_steps();
        retry_number_after(progress, self.task.retry_number, rule)
    }

    fn log(&self, end: &AttemptEnd, next: NextState, lasted: Duration) {
        let (worker, id, ms) = (self.worker, self.task.id.task_id, lasted.as_millis());
        match end {
            AttemptEnd::Success(_) => {
                tracing::info!("Worker {worker} finished task {id} in {ms} ms");
                return;
            }
            AttemptEnd::Cancelled(_) => {
                tracing::info!("Worker {worker} cancelled task {id} after {ms} ms");
            }
            AttemptEnd::Released(_) => {
                tracing::info!("Worker {worker} released task {id} after {ms} ms");
            }
            AttemptEnd::NeverStarted(error) => {
                tracing::info!("Task {id} waits again: {}", error.message);
            }
            AttemptEnd::Snoozed(error, time) => {
                tracing::info!(
                    "Worker {worker} snoozed task {id} for {} after {ms} ms: {}",
                    span((*time).min(DELAY_MAX)),
                    error.message
                );
            }
            end => {
                if let Some(error) = end.error() {
                    tracing::info!("Worker {worker} failed task {id} in {ms} ms, error is {error}");
                }
            }
        }
        match next {
            NextState::Wait { after, retry_number } if is_retried(end) => {
                tracing::info!(
                    "Worker {worker} task {id} will be retried in {:.0} s (retry {retry_number})",
                    after.as_secs_f64()
                );
            }
            NextState::End(TaskStatus::Failed) => {
                let why = why_not_retried(end, &self.class, &self.task.context);
                tracing::warn!(
                    "Worker {worker} task {id} has failed and will not be retried: {why}"
                );
            }
            _ => {}
        }
    }
}

impl<S: Send + Sync + 'static> Drop for AttemptGuard<S> {
    fn drop(&mut self) {
        if self.done {
            return;
        }
        self.hand_over(if std::thread::panicking() {
            let message = "the code of the task panicked while it was dropped";
            AttemptEnd::Panic(TaskError::new(TaskError::PANIC, message))
        } else {
            AttemptEnd::released()
        });
    }
}

/// Whether an attempt that ends like this uses a retry, if its task goes on.
fn is_retried(end: &AttemptEnd) -> bool {
    !matches!(end, AttemptEnd::Snoozed(..) | AttemptEnd::Released(_) | AttemptEnd::NeverStarted(_))
}

/// Why a failed task is not retried.
fn why_not_retried<S>(end: &AttemptEnd, class: &Class<S>, context: &Json) -> String {
    let (own, name) = (RetryOverride::of(context).unwrap_or_default(), &class.name);
    match end {
        AttemptEnd::Failure(error, RetryAdvice::NoRetry)
        | AttemptEnd::ResultNotStorable(error)
        | AttemptEnd::Unreadable(error) => format!("error {} is not retried", error.exception),
        AttemptEnd::Failure(_, RetryAdvice::ByRule)
        | AttemptEnd::Panic(_)
        | AttemptEnd::Timeout(_)
        | AttemptEnd::NotCommitted(_)
            if class.retry.is_some() =>
        {
            format!("the retry function of class {name} allows no other retry")
        }
        _ => match class.options.retry.with(&own).maximum {
            0 if own.maximum.is_some() => "this task is not retried, by its own rule".to_owned(),
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
    use task_engine_core::task::TaskOptions;

    use super::*;
    use crate::classes::{Classes, NewClass};
    use crate::context::Context;
    use crate::failure::Failure;

    fn classes(rule: RetryRule) -> Classes<()> {
        let options = TaskOptions::default().retry(rule);
        let place = std::panic::Location::caller();
        let mut classes = Classes::new();
        let new = NewClass { name: "mail".to_owned(), options, place };
        classes
            .add_async(new, |_: serde_json::Value, _: Context<()>| async { Ok::<_, Failure>(()) });
        classes
    }

    #[test]
    fn log_explains_missing_retry() {
        let error = TaskError::new("Closed", "at night");
        let by_rule = || AttemptEnd::Failure(error.clone(), RetryAdvice::ByRule);
        let no_retry = AttemptEnd::Failure(error.clone(), RetryAdvice::NoRetry);
        let lost = AttemptEnd::Lost(error.clone());
        let none = Json::empty_object();
        let never = Json::parse(r#"{"retry": {"maximum": 0}}"#).unwrap();
        for (end, rule, context, why) in [
            (by_rule(), RetryRule::times(3), &none, "retries exhausted (3 of 3)"),
            (by_rule(), RetryRule::never(), &none, "class mail is not retried"),
            (lost, RetryRule::never(), &none, "class mail is not retried"),
            (by_rule(), RetryRule::times(3), &never, "this task is not retried, by its own rule"),
            (no_retry, RetryRule::times(3), &none, "error Closed is not retried"),
        ] {
            let classes = classes(rule);
            assert_eq!(why_not_retried(&end, classes.get("mail").unwrap(), context), why);
        }
        let mut classes = classes(RetryRule::default());
        classes.retry(&[("mail".to_owned(), Arc::new(|_, _| None))]);
        let why = why_not_retried(&by_rule(), classes.get("mail").unwrap(), &none);
        assert_eq!(why, "the retry function of class mail allows no other retry");
    }
}
