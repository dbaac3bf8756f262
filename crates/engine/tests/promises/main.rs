//! What an engine promises, checked with real engines on real stores.

mod cancels;
mod completes_in_transactions;
mod completes_once;
mod counts_for_charts;
mod creates_on_terms;
mod fails_and_retries;
mod flows;
mod holds_together;
mod hooks;
mod keeps_schedules;
mod keeps_secrets;
mod knows_its_name;
mod outlives_bad_rows;
mod outlives_its_database;
mod outlives_its_tasks;
mod runs_tasks;
mod says_how_far_it_is;
mod serves_queues;
mod statements;
mod stops_cleanly;
mod store;
mod wakes_on_time;
