//! The program of `docs/start.md`, taken from there.

include!(concat!(env!("OUT_DIR"), "/start.rs"));
