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
use crate::database::Access;
use crate::exit::Fault;

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

pub(crate) async fn run(console: &Console, args: Arguments) -> Result<(), Fault> {
    let store = console.database()?.open(Access::MustExist).await?;
    let first = StatsSnapshot::take(&*store).await?;
    if !(io::stdout().is_terminal() && io::stdin().is_terminal()) {
        let mut out = console.results();
        for line in screen::lines(&first, None, usize::MAX) {
            writeln!(out, "{line}")?;
        }
        return Ok(out.flush()?);
    }
    let terminal = Terminal::take()?;
    let done = watch(&*store, first, Duration::from_secs(args.every)).await;
    drop(terminal);
    done
}

/// What happened while the screen was shown.
enum Happened {
    Key(u8),
    Time,
    Stop,
}

async fn watch(store: &dyn Store, first: StatsSnapshot, every: Duration) -> Result<(), Fault> {
    let mut keys = keys();
    let mut stop = stop_signal()?;
    let (mut look, mut before) = (first, None);
    let (mut is_paused, mut trouble) = (false, None);
    let mut clock = tokio::time::interval(every);
    clock.tick().await;
    loop {
        draw(&look, before.as_ref(), is_paused, trouble.as_deref())?;
        let happened = tokio::select! {
            Some(key) = keys.recv() => Happened::Key(key),
            _ = clock.tick() => Happened::Time,
            () = &mut stop => Happened::Stop,
        };
        match happened {
            // In raw mode Ctrl-C is a character.
            Happened::Key(b'q' | b'Q' | 3) | Happened::Stop => return Ok(()),
            Happened::Key(b'p' | b'P' | b' ') => is_paused = !is_paused,
            Happened::Time if !is_paused => match StatsSnapshot::take(store).await {
                Ok(new) => {
                    before = Some(std::mem::replace(&mut look, new));
                    trouble = None;
                }
                // It may come back; what was seen last stays.
                Err(fault) => trouble = Some(fault.to_string()),
            },
            Happened::Key(_) | Happened::Time => {}
        }
    }
}

/// Keys, as bytes. A thread of its own, because reading them cannot be given up;
/// it ends with the process.
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

type Stop = std::pin::Pin<Box<dyn Future<Output = ()> + Send>>;

fn stop_signal() -> Result<Stop, Fault> {
    use tokio::signal::unix::{SignalKind, signal};
    let wrong = |error| Fault::Failure(format!("signals cannot be heard: {error}"));
    let mut terminate = signal(SignalKind::terminate()).map_err(wrong)?;
    let mut hang_up = signal(SignalKind::hangup()).map_err(wrong)?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(wrong)?;
    Ok(Box::pin(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = hang_up.recv() => {}
            _ = interrupt.recv() => {}
        }
    }))
}

fn draw(
    look: &StatsSnapshot,
    before: Option<&StatsSnapshot>,
    is_paused: bool,
    trouble: Option<&str>,
) -> Result<(), Fault> {
    let (width, height) = size().unwrap_or((80, 24));
    let (width, height) = (usize::from(width), usize::from(height));
    let mut lines = screen::lines(look, before, height.saturating_sub(1));
    lines.truncate(height.saturating_sub(1));
    let foot = match (trouble, is_paused) {
        (Some(trouble), _) => format!("no news: {}", crate::escape::summary(trouble, 200)),
        (None, true) => "paused; p goes on, q ends".to_owned(),
        (None, false) => "p pauses, q ends".to_owned(),
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

/// The terminal while it is ours; given back when this is dropped, and before a
/// panic is printed.
struct Terminal;

impl Terminal {
    fn take() -> Result<Self, Fault> {
        let wrong = |error| Fault::Failure(format!("the terminal cannot be used: {error}"));
        let hook = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            release();
            hook(panic);
        }));
        enable_raw_mode().map_err(wrong)?;
        let terminal = Self;
        execute!(io::stdout(), EnterAlternateScreen, DisableLineWrap, Hide).map_err(wrong)?;
        Ok(terminal)
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        release();
    }
}

fn release() {
    let _ = execute!(io::stdout(), Show, EnableLineWrap, LeaveAlternateScreen);
    let _ = disable_raw_mode();
}
