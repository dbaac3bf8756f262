//! The program of `docs/start.md`, as it stands there.

include!(concat!(env!("OUT_DIR"), "/start.rs"));
