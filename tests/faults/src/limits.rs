//! Limits of tasks under faults.

use std::time::Duration;

use task_engine::NewTask;
use task_engine_core::limit::{Limit, LimitOptions, Rate};

use crate::commands::{Action, CLASS, TaskSpec};

/// At most [`RUNNING_MAX`] attempts of a customer run at a time.
pub const PER_CUSTOMER: &str = "per_customer";
/// At most [`STARTS_MAX`] attempts start in any [`WINDOW`], for each key.
pub const RATED: &str = "rated";
/// The tasks of a key run one at a time, in order.
pub const ORDERED: &str = "ordered";

/// See [`PER_CUSTOMER`].
pub const RUNNING_MAX: usize = 2;
/// See [`RATED`].
pub const STARTS_MAX: usize = 5;
/// See [`RATED`].
pub const WINDOW: Duration = Duration::from_secs(1);

/// All limits.
#[must_use]
pub fn limits() -> [Limit; 3] {
    let max = u32::try_from(RUNNING_MAX).expect("a small number");
    let starts = u32::try_from(STARTS_MAX).expect("a small number");
    let per_customer = LimitOptions::max(max).key("customer");
    let rated = LimitOptions::rate(Rate::new(starts, WINDOW));
    [
        Limit::of_class(PER_CUSTOMER, CLASS, per_customer).expect("a limit"),
        Limit::named(RATED, rated).expect("a limit"),
        Limit::named(ORDERED, LimitOptions::in_order()).expect("a limit"),
    ]
}

/// The task of this number: of one of four customers, some with a rate, others in order. The
/// first attempt of some tasks in order fails.
#[must_use]
pub fn limited_task(number: usize, spec: &TaskSpec) -> NewTask {
    let mut spec = spec.clone();
    spec.customer = Some(format!("customer-{}", number % 4));
    let key = format!("key-{}", number / 10 % 2);
    match number % 10 {
        3 | 7 => spec.task().limit(RATED, key).expect("a name"),
        5 | 9 => {
            if number % 50 == 5 {
                (spec.action, spec.attempts) = (Action::Fail, Some(1));
            }
            spec.task().limit(ORDERED, key).expect("a name")
        }
        _ => spec.task(),
    }
}
