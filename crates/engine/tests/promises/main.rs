//! What an engine promises, checked with real engines on real stores.

mod cancels;
mod completes_in_transactions;
mod completes_once;
mod creates_tasks;
mod fails_and_retries;
mod fires_schedules;
mod flows;
mod hooks;
mod instance_names;
mod isolation;
mod keeps_secrets;
mod progress_and_logs;
mod rollups;
mod runs_tasks;
mod rust_api;
mod serves_queues;
mod signals;
mod statements;
mod stops_cleanly;
mod store;
mod survives_bad_rows;
mod survives_database_outage;
mod survives_tasks;
mod wakes_on_time;
