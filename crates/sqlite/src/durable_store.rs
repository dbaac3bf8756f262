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

use crate::store::{SqliteStore, jobs};
use crate::{signals, steps, suspend};

impl DurableStore for SqliteStore {
    jobs! {
        reader fn steps<'a>(id: TaskId) -> TaskSteps => move |tx| steps::steps(tx, id);
        writer fn record_steps<'a>(steps: &'a [NewStep]) -> Vec<StepOutcome> =>
            move |tx| steps::record_steps(tx, &steps);
        writer fn record_call<'a>(call: &'a NewCall) -> StepOutcome =>
            move |tx| steps::record_call(tx, &call);
        writer fn suspend<'a>(suspensions: &'a [Suspension]) -> Vec<SuspendOutcome> =>
            move |tx| suspend::suspend(tx, &suspensions);
        writer fn time_out<'a>(
            id: AttemptId, claim_id: ClaimId, name: &'a str
        ) -> WaitOutcome =>
            move |tx| signals::time_out(tx, id, claim_id, &name);
        writer fn resume_parents<'a>(ended: &'a [TaskId]) -> u64 =>
            move |tx| suspend::resume_parents(tx, &ended);
        writer fn resume_missed<'a>(after: TaskId, limit: u32) -> Option<TaskId> =>
            move |tx| suspend::resume_missed(tx, after, limit);
        reader fn child_outcomes<'a>(
            children: &'a [(TaskId, Option<i32>)]
        ) -> Vec<Option<ChildOutcome>> =>
            move |tx| suspend::child_outcomes(tx, &children);
        writer fn signal<'a>(
            target: &'a SignalTarget, name: &'a str, payload: &'a Json
        ) -> SignalReport =>
            move |tx| signals::signal(tx, &target, &name, &payload);
        writer fn create_with_steps<'a>(
            task: &'a NewTask, from: TaskId, before_number: u32
        ) -> TaskId =>
            move |tx| steps::create_with_steps(tx, &task, from, before_number);
    }
}
