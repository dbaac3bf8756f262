//! The log: time, level, message, one line each, on the standard error.

use std::fmt::{self, Write as _};
use std::io::{self, IsTerminal, Write};
use std::sync::OnceLock;

use indicatif::MultiProgress;
use jiff::tz::TimeZone;
use jiff::{Timestamp, Zoned};
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

use crate::console::Console;
use crate::error::CliError;
use crate::escape::escape;

const VARIABLE: &str = "TASK_ENGINE_LOG";

/// Starts the log. `watched`: the command logs at level info by default.
pub(crate) fn begin(console: &Console, watched: bool) -> Result<LogGuard, CliError> {
    // The code that uses a connection reports that it was lost.
    let default = match (console.is_verbose(), console.is_quiet(), watched) {
        (true, _, _) => "warn,task_engine=debug",
        (_, false, true) => "warn,deadpool=error,task_engine=info",
        _ => "warn,deadpool=error",
    };
    let wanted = std::env::var(VARIABLE).ok().filter(|filter| !filter.is_empty());
    let filter = EnvFilter::builder().parse(wanted.as_deref().unwrap_or(default));
    let filter = filter.map_err(|error| {
        CliError::Usage(format!(
            "{VARIABLE} is not a log filter ({error}); write it like `debug` or `task_engine=info,warn`"
        ))
    })?;
    let coloured = io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none();
    #[cfg(feature = "otlp")]
    if let Some(export) = export(filter.clone(), coloured)? {
        return Ok(LogGuard { export: Some(export) });
    }
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_ansi(coloured)
        // It would report to the standard error that it cannot be written to.
        .log_internal_errors(false)
        .with_writer(|| StderrWriter)
        .event_format(LogFormat { zone: TimeZone::system() })
        .init();
    Ok(LogGuard::default())
}

/// Keeps the log until the end of the run.
#[derive(Debug, Default)]
pub(crate) struct LogGuard {
    #[cfg(feature = "otlp")]
    export: Option<task_engine::otlp::Export>,
}

impl LogGuard {
    /// Sends the remaining spans.
    #[cfg_attr(not(feature = "otlp"), allow(clippy::unused_self))]
    pub(crate) fn end(self) {
        #[cfg(feature = "otlp")]
        if let Some(export) = self.export {
            export.finish();
        }
    }
}

/// Logs and exports spans, if the environment names a collector.
#[cfg(feature = "otlp")]
fn export(lines: EnvFilter, coloured: bool) -> Result<Option<task_engine::otlp::Export>, CliError> {
    use tracing_subscriber::filter::LevelFilter;
    use tracing_subscriber::prelude::*;

    let variable = |name| std::env::var(name).ok().filter(|value| !value.is_empty());
    let Some(endpoint) = variable(COLLECTOR_VARIABLE) else {
        return Ok(None);
    };
    let service = variable("OTEL_SERVICE_NAME").unwrap_or_else(|| "task-engine".to_owned());
    let (layer, export) = task_engine::otlp::export(Some(&endpoint), &service)
        .map_err(|error| CliError::Usage(format!("{COLLECTOR_VARIABLE}: {error}")))?;
    let written = tracing_subscriber::fmt::layer()
        .with_ansi(coloured)
        .log_internal_errors(false)
        .with_writer(|| StderrWriter)
        .event_format(LogFormat { zone: TimeZone::system() })
        .with_filter(lines);
    tracing_subscriber::registry().with(written).with(layer.with_filter(LevelFilter::INFO)).init();
    Ok(Some(export))
}

#[cfg(feature = "otlp")]
const COLLECTOR_VARIABLE: &str = "OTEL_EXPORTER_OTLP_ENDPOINT";

static BARS: OnceLock<MultiProgress> = OnceLock::new();

/// From now on, log lines are printed above these progress bars.
pub(crate) fn print_above(bars: &MultiProgress) {
    let _ = BARS.set(bars.clone());
}

struct StderrWriter;

impl Write for StderrWriter {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        match BARS.get() {
            Some(bars) => bars.suspend(|| io::stderr().write(line)),
            None => io::stderr().write(line),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stderr().flush()
    }
}

struct LogFormat {
    zone: TimeZone,
}

impl<S, N> FormatEvent<S, N> for LogFormat
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        _: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let mut message = EventText::default();
        event.record(&mut message);
        let time = Zoned::new(Timestamp::now(), self.zone.clone());
        let level = level(*event.metadata().level(), writer.has_ansi_escapes());
        writeln!(
            writer,
            "{} {level} {}",
            time.strftime("%Y-%m-%d %H:%M:%S.%3f"),
            escape(&message.text)
        )
    }
}

fn level(level: Level, coloured: bool) -> String {
    let colour = match level {
        Level::ERROR => 31,
        Level::WARN => 33,
        Level::INFO => 32,
        _ => 2,
    };
    if coloured { format!("\u{1b}[{colour}m{level:5}\u{1b}[0m") } else { format!("{level:5}") }
}

/// The message, then the other fields. Tasks contribute text to it, so line ends and
/// escape sequences are escaped.
#[derive(Default)]
struct EventText {
    text: String,
}

impl Visit for EventText {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        if field.name() == "message" {
            self.text.insert_str(0, &format!("{value:?}"));
        } else {
            let _ = write!(self.text, " {}={value:?}", field.name());
        }
    }
}
