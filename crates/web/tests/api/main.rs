//! The HTTP API on real stores.

mod audit;
mod bad_input;
mod client;
mod creation;
mod description;
mod disconnect;
mod durable;
mod events;
mod flows;
mod large_lists;
mod limits;
mod login;
mod metrics;
mod operations;
mod outage;
mod paging;
mod protection;
mod read_only;
mod roles;
mod schemas;
