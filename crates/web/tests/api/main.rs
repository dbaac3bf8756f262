//! What the HTTP interface promises, on real stores.

mod audit;
mod bad_input;
mod client;
mod creation;
mod crowds;
mod description;
mod events;
mod flow_of_work;
mod hanging_up;
mod login;
mod metrics;
mod outage;
mod paging;
mod protection;
mod read_only;
mod roles;
