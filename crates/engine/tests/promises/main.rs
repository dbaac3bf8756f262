//! What an engine promises, checked with real engines on real stores.

mod cancels;
mod fails_and_retries;
mod keeps_schedules;
mod knows_its_name;
mod outlives_its_database;
mod outlives_its_tasks;
mod runs_tasks;
mod stops_cleanly;
mod store;
mod wakes_on_time;
