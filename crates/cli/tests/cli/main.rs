//! The program as its users meet it: run, killed and asked from outside.

mod as_process_one;
mod bench;
mod chooses;
mod commands;
mod demo;
mod docs;
mod keeps_schedules;
mod loses_nothing;
mod queues;
mod recovers;
mod says;
mod stops;
mod support;
mod trace;
mod wrong_inputs;
