//! The protocols as models, every order of events checked: claims, leases,
//! records, recovery and cancelling in [`attempts`], regular tasks in [`slots`].
//!
//! A model that cannot fail proves nothing, so each has variants that leave out
//! one rule of the protocol, and the property that the rule is there for must
//! find them.

mod attempts;
mod slots;
