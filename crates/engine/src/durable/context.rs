//! The durable calls of a handler.

use std::future::Future;
use std::panic::resume_unwind;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use serde::Serialize;
use serde::de::DeserializeOwned;
use task_engine_core::json::Json;
use task_engine_core::step::{ChildOutcome, StepContent};
use task_engine_core::task::{NewTask, Task};
use tracing::Instrument as _;

use super::attempt::{CURRENT_STEP, StepState, not_decodable};
use super::exit::UnwindForExit;
use super::{ChildFailed, WaitTimedOut};
use crate::context::Context;
use crate::failure::Failure;
use crate::trace;

impl<S> Context<S> {
    /// Runs code once and stores its result; later attempts of the task get the stored result.
    ///
    /// See [`durable`](crate::durable).
    ///
    /// An error of the code is returned as it is and not stored, so that a later attempt runs
    /// the step again. The name identifies the step; the second step of the same name is
    /// `name#2`.
    ///
    /// ```
    /// # use task_engine::{Context, Failure};
    /// # struct App; impl App { async fn charge(&self, _: u64) -> Result<String, std::io::Error> { Ok("r-1".into()) } }
    /// # #[derive(serde::Serialize, serde::Deserialize, task_engine::Task)] struct Order { id: u64 }
    /// async fn order(task: Order, cx: Context<App>) -> Result<String, Failure> {
    ///     let receipt = cx.step("charge", || cx.state().charge(task.id)).await?;
    ///     Ok(receipt)
    /// }
    /// ```
    pub async fn step<T, E, F, Fut>(&self, name: &str, code: F) -> Result<T, E>
    where
        T: Serialize + DeserializeOwned,
        F: FnOnce() -> Fut,
        Fut: Future<Output = Result<T, E>>,
    {
        let (name, stored) = self.entered(self.enter_step(name).await).await;
        if let Some(stored) = stored {
            return Ok(self.decoded(&format!("the result of step {name:?}"), &stored).await);
        }
        let began = Instant::now();
        let span = trace::step(&name);
        let value = CURRENT_STEP.scope(name.clone(), code()).instrument(span).await?;
        let result = self.encoded(&name, &value).await;
        let recorded = self.leave_step(&name, result, began.elapsed()).await;
        match self.or_exit(recorded).await {
            None => Ok(value),
            Some(other) => Ok(self.decoded(&format!("the result of step {name:?}"), &other).await),
        }
    }

    /// Sleeps for a time by the database's clock.
    ///
    /// The attempt ends, so that neither a worker nor memory is used meanwhile, and the next
    /// attempt continues here. A sleep of up to five seconds waits in place. No retry is used.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use task_engine::{Context, Failure, Task, testing::Harness};
    /// # #[derive(serde::Serialize, serde::Deserialize, Task)]
    /// # struct Remind { to: String }
    /// async fn remind(task: Remind, cx: Context<()>) -> Result<(), Failure> {
    ///     cx.sleep("three days", Duration::from_secs(3 * 86_400)).await;
    ///     cx.log(format!("reminded {}", task.to));
    ///     Ok(())
    /// }
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// # let harness = Harness::new(|tasks| tasks.engine(()).handle(remind)).await;
    /// # harness.tasks().create(Remind { to: "ada".into() }).await.unwrap();
    /// # harness.drain_until_quiet().await.assert_all_done();
    /// # }
    /// ```
    pub async fn sleep(&self, name: &str, time: Duration) {
        let slept = self.sleep_or_suspend(name, StepContent::SleepFor(time)).await;
        self.or_exit(slept).await;
    }

    /// Sleeps until a time by the database's clock: see [`sleep`](Self::sleep).
    pub async fn sleep_until(&self, name: &str, time: Timestamp) {
        let slept = self.sleep_or_suspend(name, StepContent::SleepUntil(time)).await;
        self.or_exit(slept).await;
    }

    /// Waits for a signal to this task, at most for `timeout`, counted from the first call.
    ///
    /// The attempt ends meanwhile, as for [`sleep`](Self::sleep). Send the signal with
    /// [`TaskEngine::signal`](crate::TaskEngine::signal), SQL, HTTP or the command line.
    ///
    /// A signal that was sent before the wait is kept. The first signal of a name counts. The
    /// second wait for `approved` waits for the signal `approved#2`.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use task_engine::{Context, Failure, Task};
    /// # #[derive(serde::Serialize, serde::Deserialize, Task)]
    /// # struct Publish { article: u64 }
    /// async fn publish(task: Publish, cx: Context<()>) -> Result<String, Failure> {
    ///     let week = Duration::from_secs(7 * 86_400);
    ///     match cx.wait_for::<String>("approved", week).await {
    ///         Ok(editor) => Ok(format!("approved by {editor}")),
    ///         Err(_timed_out) => Err(Failure::no_retry("not approved within a week")),
    ///     }
    /// }
    /// ```
    ///
    /// # Errors
    /// Fails with [`WaitTimedOut`] if the signal did not arrive in time.
    pub async fn wait_for<T: DeserializeOwned>(
        &self,
        name: &str,
        timeout: Duration,
    ) -> Result<T, WaitTimedOut> {
        let waited = self.wait_or_suspend(name, timeout).await;
        let signal = self.or_exit(waited).await;
        if signal.timed_out {
            return Err(WaitTimedOut { signal: signal.name, timeout });
        }
        let what = format!("the payload of signal {:?}", signal.name);
        Ok(self.decoded(&what, &signal.payload).await)
    }

    /// Creates a child task and waits for its result.
    ///
    /// The child is created once. The attempt ends meanwhile, as for [`sleep`](Self::sleep). The
    /// name of the step is the class of the child.
    ///
    /// ```
    /// # use task_engine::{Context, Failure, Task, testing::Harness};
    /// # #[derive(serde::Serialize, serde::Deserialize, Task)]
    /// # struct Total { numbers: Vec<i64> }
    /// # #[derive(serde::Serialize, serde::Deserialize, Task)]
    /// # struct Sum { numbers: Vec<i64> }
    /// async fn total(task: Total, cx: Context<()>) -> Result<i64, Failure> {
    ///     let sum: i64 = cx.call(Sum { numbers: task.numbers }).await?;
    ///     Ok(sum)
    /// }
    /// # async fn sum(task: Sum) -> Result<i64, Failure> { Ok(task.numbers.iter().sum()) }
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// # let harness = Harness::new(|tasks| tasks.engine(()).handle(total).handle(sum)).await;
    /// # harness.tasks().create(Total { numbers: vec![1, 2] }).await.unwrap();
    /// # let drained = harness.drain_until_quiet().await;
    /// # drained.assert_all_done();
    /// # }
    /// ```
    ///
    /// # Errors
    /// Fails with [`ChildFailed`] if the child failed, was cancelled or was removed.
    pub async fn call<T: Task, R: DeserializeOwned>(&self, child: T) -> Result<R, ChildFailed> {
        let outcomes = self.call_tasks(T::CLASS, || Ok(vec![NewTask::of(&child)?])).await;
        let outcome = outcomes.into_iter().next();
        match outcome {
            Some(outcome) => self.child_result(outcome).await,
            None => self.exit(Failure::named("ChildMissing", "the call has no child")).await,
        }
    }

    /// Creates up to 10,000 child tasks of one class, and waits until all of them have ended.
    ///
    /// The task continues once, when the last child has ended. The results are in the order of the
    /// children.
    pub async fn call_all<T: Task, R: DeserializeOwned>(
        &self,
        children: impl IntoIterator<Item = T>,
    ) -> Vec<Result<R, ChildFailed>> {
        let prepare =
            || Ok(children.into_iter().map(|c| NewTask::of(&c)).collect::<Result<_, _>>()?);
        let mut results = Vec::new();
        for outcome in self.call_tasks(T::CLASS, prepare).await {
            results.push(self.child_result(outcome).await);
        }
        results
    }

    async fn call_tasks(
        &self,
        name: &str,
        children: impl FnOnce() -> Result<Vec<NewTask>, Failure>,
    ) -> Vec<ChildOutcome> {
        let ended = self.call_or_suspend(name, children).await;
        self.or_exit(ended).await
    }

    async fn child_result<R: DeserializeOwned>(
        &self,
        outcome: ChildOutcome,
    ) -> Result<R, ChildFailed> {
        match outcome.result {
            Some(result) => {
                Ok(self.decoded(&format!("the result of child task {}", outcome.id), &result).await)
            }
            None => Err(ChildFailed::of(outcome)),
        }
    }

    /// Runs an asynchronous durable call in a blocking handler.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use task_engine::{Context, Failure};
    /// fn nightly(cx: Context<()>) -> Result<(), Failure> {
    ///     let rows = cx.block_on(cx.step("count", || async { Ok::<_, Failure>(7) }))?;
    ///     cx.block_on(cx.sleep("pause", Duration::from_secs(3600)));
    ///     cx.log(format!("{rows} rows"));
    ///     Ok(())
    /// }
    /// ```
    ///
    /// # Panics
    /// Panics in asynchronous code: await the call instead.
    pub fn block_on<F: Future>(&self, call: F) -> F::Output {
        self.handle.session.runtime.block_on(call)
    }

    async fn entered(&self, state: Result<StepState, Failure>) -> (String, Option<Json>) {
        match self.or_exit(state).await {
            StepState::Run(name) => (name, None),
            StepState::Recorded(name, result) => (name, Some(result)),
        }
    }

    pub(super) async fn encoded<T: Serialize>(&self, name: &str, value: &T) -> Json {
        match Json::encode(value) {
            Ok(json) => json,
            Err(error) => {
                let message = format!("the result of step {name:?} cannot be stored: {error}");
                self.exit(Failure::no_retry(Failure::named("StepNotStorable", message))).await
            }
        }
    }

    pub(super) async fn decoded<T: DeserializeOwned>(&self, what: &str, stored: &Json) -> T {
        match stored.decode() {
            Ok(value) => value,
            Err(error) => self.exit(not_decodable(what, &error)).await,
        }
    }

    /// The value, or the end of the attempt: then this never returns.
    pub(crate) async fn or_exit<T>(&self, result: Result<T, Failure>) -> T {
        match result {
            Ok(value) => value,
            Err(end) => self.exit(end).await,
        }
    }

    /// Ends the attempt. The handler does not continue: see [`exit`](super::exit).
    async fn exit<T>(&self, end: Failure) -> T {
        self.handle.exit.request(end);
        if self.handle.blocking {
            resume_unwind(Box::new(UnwindForExit));
        }
        // Wakes the handler's future, if this runs in another one.
        self.cancelled.cancel();
        std::future::pending().await
    }
}
