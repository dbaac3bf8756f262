//! `task-engine top`.

mod screen;

use std::io::{self, IsTerminal, Read, Write};
use std::time::Duration;

use clap::Args;
use crossterm::cursor::{Hide, MoveTo, Show};
use crossterm::style::Print;
use crossterm::terminal::{
    Clear, ClearType, DisableLineWrap, EnableLineWrap, EnterAlternateScreen, LeaveAlternateScreen,
    disable_raw_mode, enable_raw_mode, size,
};
use crossterm::{execute, queue};
use task_engine::Store;
use task_engine_operations::stats::StatsSnapshot;
use tokio::sync::mpsc;

use crate::console::Console;
use crate::error::CliError;
use crate::signals::StopSignals;

/// Watch activity on the whole screen
///
/// Keys: q quits, p pauses and resumes. Without a terminal, it prints the state
/// once.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// How often to refresh, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 1, allow_negative_numbers = true,
          value_parser = clap::value_parser!(u64).range(1..=3600))]
    every: u64,
}

pub(crate) async fn run(console: &Console, args: Arguments) -> Result<(), CliError> {
    let store = console.open().await?;
    let first = StatsSnapshot::take(&*store).await?;
    if !(io::stdout().is_terminal() && io::stdin().is_terminal()) {
        let mut out = console.results();
        for line in screen::lines(&first, None, usize::MAX) {
            writeln!(out, "{line}")?;
        }
        return Ok(out.flush()?);
    }
    let terminal = RawTerminal::enter()?;
    let done = watch(&*store, first, Duration::from_secs(args.every)).await;
    drop(terminal);
    done
}

/// What can happen while the screen is shown.
enum ScreenEvent {
    Key(u8),
    Time,
    Stop,
}

async fn watch(store: &dyn Store, first: StatsSnapshot, every: Duration) -> Result<(), CliError> {
    let mut keys = keys();
    let mut stop = StopSignals::listen()?;
    let (mut look, mut before) = (first, None);
    let (mut is_paused, mut error) = (false, None);
    let mut clock = tokio::time::interval(every);
    clock.tick().await;
    loop {
        draw(&look, before.as_ref(), is_paused, error.as_deref())?;
        let event = tokio::select! {
            Some(key) = keys.recv() => ScreenEvent::Key(key),
            _ = clock.tick() => ScreenEvent::Time,
            () = stop.recv() => ScreenEvent::Stop,
        };
        match event {
            // In raw mode Ctrl-C is a character.
            ScreenEvent::Key(b'q' | b'Q' | 3) | ScreenEvent::Stop => return Ok(()),
            ScreenEvent::Key(b'p' | b'P' | b' ') => is_paused = !is_paused,
            ScreenEvent::Time if !is_paused => match StatsSnapshot::take(store).await {
                Ok(new) => {
                    before = Some(std::mem::replace(&mut look, new));
                    error = None;
                }
                // It may recover; the last state stays on the screen.
                Err(failed) => error = Some(failed.to_string()),
            },
            ScreenEvent::Key(_) | ScreenEvent::Time => {}
        }
    }
}

/// Keys, as bytes. Reading them cannot be cancelled, so its own thread does it and
/// ends with the process.
fn keys() -> mpsc::Receiver<u8> {
    let (send, receive) = mpsc::channel(16);
    std::thread::spawn(move || {
        let mut byte = [0];
        while matches!(io::stdin().read(&mut byte), Ok(1)) {
            if send.blocking_send(byte[0]).is_err() {
                return;
            }
        }
    });
    receive
}

fn draw(
    look: &StatsSnapshot,
    before: Option<&StatsSnapshot>,
    is_paused: bool,
    error: Option<&str>,
) -> Result<(), CliError> {
    let (width, height) = size().unwrap_or((80, 24));
    let (width, height) = (usize::from(width), usize::from(height));
    let mut lines = screen::lines(look, before, height.saturating_sub(1));
    lines.truncate(height.saturating_sub(1));
    let foot = match (error, is_paused) {
        (Some(error), _) => format!("could not refresh: {}", crate::escape::summary(error, 200)),
        (None, true) => "paused; p resumes, q quits".to_owned(),
        (None, false) => "p pauses, q quits".to_owned(),
    };
    let mut out = io::stdout().lock();
    queue!(out, MoveTo(0, 0))?;
    for line in &lines {
        queue!(
            out,
            Print(screen::cut(line, width)),
            Clear(ClearType::UntilNewLine),
            Print("\r\n")
        )?;
    }
    queue!(out, Clear(ClearType::FromCursorDown))?;
    let last = u16::try_from(height.saturating_sub(1)).unwrap_or(0);
    queue!(out, MoveTo(0, last), Print(screen::cut(&foot, width)))?;
    Ok(out.flush()?)
}

/// The terminal in raw mode; restored when this is dropped, and before a panic is
/// printed.
struct RawTerminal;

impl RawTerminal {
    fn enter() -> Result<Self, CliError> {
        let wrong = |error| CliError::Failure(format!("cannot use the terminal: {error}"));
        let hook = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            restore();
            hook(panic);
        }));
        enable_raw_mode().map_err(wrong)?;
        let terminal = Self;
        execute!(io::stdout(), EnterAlternateScreen, DisableLineWrap, Hide).map_err(wrong)?;
        Ok(terminal)
    }
}

impl Drop for RawTerminal {
    fn drop(&mut self) {
        restore();
    }
}

fn restore() {
    let _ = execute!(io::stdout(), Show, EnableLineWrap, LeaveAlternateScreen);
    let _ = disable_raw_mode();
}
