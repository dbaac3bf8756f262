//! What durable tasks need: recorded steps, suspension, signals and awaited children.

use task_engine_core::attempt::AttemptId;
use task_engine_core::claim::ClaimId;
use task_engine_core::json::Json;
use task_engine_core::step::{
    ChildOutcome, NewCall, NewStep, SignalReport, SignalTarget, StepOutcome, SuspendOutcome,
    Suspension, TaskSteps, WaitOutcome,
};
use task_engine_core::task::{NewTask, TaskId};

use super::{StoreBase, StoreFuture};

/// The methods of a store for durable tasks.
///
/// Tasks without steps call none of this.
pub trait DurableStore: StoreBase {
    /// Returns everything that is recorded about the steps of a task, with the database's time.
    ///
    /// Empty for an unknown task.
    fn steps(&self, id: TaskId) -> StoreFuture<'_, TaskSteps>;

    /// Records steps, each at most once: the first record of a name wins.
    ///
    /// The outcomes are in order. A step of an attempt that has ended, or whose claim was
    /// reclaimed, is refused.
    fn record_steps<'a>(&'a self, steps: &'a [NewStep]) -> StoreFuture<'a, Vec<StepOutcome>>;

    /// Creates child tasks and records the step that awaits them, all in one transaction.
    fn record_call<'a>(&'a self, call: &'a NewCall) -> StoreFuture<'a, StepOutcome>;

    /// Ends attempts whose tasks wait for a signal or for children.
    ///
    /// A task whose signal has been sent, or whose children have all ended, is due at once.
    ///
    /// It does not wait for a transaction that sends a signal to the task; the outcome is then
    /// [`SuspendOutcome::Open`], and the caller asks again.
    fn suspend<'a>(&'a self, suspensions: &'a [Suspension])
    -> StoreFuture<'a, Vec<SuspendOutcome>>;

    /// Decides a wait whose deadline has passed: records its timeout, unless its signal has
    /// been sent before.
    fn time_out<'a>(
        &'a self,
        id: AttemptId,
        claim_id: ClaimId,
        name: &'a str,
    ) -> StoreFuture<'a, WaitOutcome>;

    /// Makes the parents of these ended tasks due, if they are suspended and all their children
    /// have ended.
    ///
    /// It also decides about the tasks that depend on them
    /// ([`decide_dependent`](task_engine_core::dependency::decide_dependent)), and about those that
    /// depend on a task that this cancels.
    ///
    /// Call it after the ends are committed. Returns how many tasks are due.
    fn resume_parents<'a>(&'a self, ended: &'a [TaskId]) -> StoreFuture<'a, u64>;

    /// Makes suspended tasks due that were not resumed after their signal was sent or their
    /// children ended.
    ///
    /// An engine died before it called [`resume_parents`](Self::resume_parents), or a signal was
    /// sent in a transaction with one snapshot.
    ///
    /// Looks at `limit` suspended tasks, in the order of their ids, from after this one on. Returns
    /// the last one, or `None` after the last of all.
    fn resume_missed(&self, after: TaskId, limit: u32) -> StoreFuture<'_, Option<TaskId>>;

    /// Returns how tasks ended, in order: by this attempt, or by their newest one.
    ///
    /// `None` in the place of one that has not ended.
    fn child_outcomes<'a>(
        &'a self,
        children: &'a [(TaskId, Option<i32>)],
    ) -> StoreFuture<'a, Vec<Option<ChildOutcome>>>;

    /// Sends a signal to a task.
    ///
    /// The first one of a name counts.
    fn signal<'a>(
        &'a self,
        target: &'a SignalTarget,
        name: &'a str,
        payload: &'a Json,
    ) -> StoreFuture<'a, SignalReport>;

    /// Creates a task with the steps of another one that have a lower number than `before_number`,
    /// and with the signals that they received.
    ///
    /// It starts at once, and has the dependencies of the other one, so that it can read their
    /// results.
    fn create_with_steps<'a>(
        &'a self,
        task: &'a NewTask,
        from: TaskId,
        before_number: u32,
    ) -> StoreFuture<'a, TaskId>;
}
