//! The program as its users meet it: run, killed and asked from outside.

mod as_process_one;
mod bench;
mod chooses;
mod commands;
mod demo;
mod docs;
mod doctor;
mod executables;
mod keeps_schedules;
mod keeps_secrets;
mod loses_nothing;
mod moves;
mod numbers;
mod operators;
mod packaging;
mod persistent_executables;
mod queues;
mod recovers;
mod rights;
mod says;
mod serves;
mod stops;
mod support;
mod trace;
mod watching;
mod wrong_inputs;
