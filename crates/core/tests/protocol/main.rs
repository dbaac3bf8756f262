//! The protocols as models, checked for every order of events: claims, leases,
//! records, recovery and cancelling in [`attempts`], schedules in [`slots`], steps,
//! signals and timeouts of durable tasks in [`suspend`], calls in [`children`], dependencies
//! of tasks in [`flows`], limits in [`limits`], strict order in [`order`].
//!
//! Each model has variants without one of the rules. The property that needs the
//! rule must fail for them.

mod attempts;
mod children;
mod flows;
mod limits;
mod order;
mod slots;
mod suspend;
