//! The contract of durable tasks.

use task_engine_core::attempt::AttemptId;
use task_engine_core::claim::ClaimId;
use task_engine_core::json::Json;
use task_engine_core::step::{
    ChildOutcome, NewCall, NewStep, SignalReport, SignalTarget, StepOutcome, SuspendOutcome,
    Suspension, TaskSteps, WaitOutcome,
};
use task_engine_core::task::{NewTask, TaskId};
use task_engine_store::contract::{DurableStore, StoreFuture};

use crate::store::{PgStore, STATEMENT, calls};

impl DurableStore for PgStore {
    calls! {
        STATEMENT => fn steps<'a>(id: TaskId) -> TaskSteps;
        STATEMENT => fn record_steps<'a>(steps: &'a [NewStep]) -> Vec<StepOutcome>;
        STATEMENT => fn record_call<'a>(call: &'a NewCall) -> StepOutcome;
        STATEMENT => fn suspend<'a>(suspensions: &'a [Suspension]) -> Vec<SuspendOutcome>;
        STATEMENT => fn time_out<'a>(
            id: AttemptId, claim_id: ClaimId, name: &'a str
        ) -> WaitOutcome;
        STATEMENT => fn resume_parents<'a>(ended: &'a [TaskId]) -> u64;
        STATEMENT => fn resume_missed<'a>(after: TaskId, limit: u32) -> Option<TaskId>;
        STATEMENT => fn child_outcomes<'a>(
            children: &'a [(TaskId, Option<i32>)]
        ) -> Vec<Option<ChildOutcome>>;
        STATEMENT => fn signal<'a>(
            target: &'a SignalTarget, name: &'a str, payload: &'a Json
        ) -> SignalReport;
        STATEMENT => fn create_with_steps<'a>(
            task: &'a NewTask, from: TaskId, before_number: u32
        ) -> TaskId;
    }
}
