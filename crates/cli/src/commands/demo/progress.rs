//! The progress of a demo: a bar on a terminal, lines otherwise.

use std::time::{Duration, Instant};

use indicatif::{MultiProgress, ProgressBar, ProgressStyle};

use crate::console::Console;
use crate::log;

pub(super) enum DemoProgress<'a> {
    Bar(ProgressBar),
    Lines { console: &'a Console, all: usize, shown: usize, at: Instant },
}

/// How often a line is printed, if the number has changed.
const LINE_EVERY: Duration = Duration::from_secs(1);

impl<'a> DemoProgress<'a> {
    pub(super) fn new(console: &'a Console, all: usize) -> Self {
        if !console.may_animate() {
            return Self::Lines { console, all, shown: 0, at: Instant::now() };
        }
        let bars = MultiProgress::new();
        log::print_above(&bars);
        let style = ProgressStyle::with_template("{bar:40} {pos} of {len} tasks, {elapsed}");
        let bar = ProgressBar::new(all as u64)
            .with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
        let bar = bars.add(bar);
        bar.enable_steady_tick(Duration::from_millis(100));
        Self::Bar(bar)
    }

    pub(super) fn show(&mut self, done: usize) {
        match self {
            Self::Bar(bar) => bar.set_position(done as u64),
            Self::Lines { console, all, shown, at } => {
                let new = done > *shown;
                if new && (at.elapsed() >= LINE_EVERY || done == *all) {
                    (*shown, *at) = (done, Instant::now());
                    console.message(format_args!("{done} of {all} tasks done"));
                }
            }
        }
    }

    pub(super) fn finish(&self) {
        if let Self::Bar(bar) = self {
            bar.abandon();
        }
    }
}
