//! The HTTP API on real stores.

mod audit;
mod bad_input;
mod client;
mod creation;
mod description;
mod disconnect;
mod durable;
mod events;
mod large_lists;
mod login;
mod metrics;
mod operations;
mod outage;
mod paging;
mod protection;
mod read_only;
mod roles;
