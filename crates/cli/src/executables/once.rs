//! One process a task: parameters in, result out, and the log beside.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use serde::Deserialize;
use serde_json::value::RawValue;
use task_engine::model::words::{count, span};
use task_engine::{Failure, Run};
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::time::{Instant, sleep_until, timeout};

use super::child::{self, Ending};
use super::config::Executable;
use super::log::{Tail, for_each_line};
use crate::times::duration;

/// Exit code: the task has failed, and must not be retried.
pub(crate) const DO_NOT_RETRY: i32 = 100;
/// Exit code: not now, but later (`EX_TEMPFAIL` of sysexits.h).
pub(crate) const TRY_LATER: i32 = 75;

/// When a process has ended, all that could write has; this is for the rest.
const OUTPUT_PATIENCE: Duration = Duration::from_secs(1);
const FIRST_CHARS: usize = 100;

/// What was printed for the result.
enum Output {
    Whole(Vec<u8>),
    TooMuch,
}

/// Runs one attempt.
pub(super) async fn run(
    executable: Arc<Executable>,
    parameters: Box<RawValue>,
    run: Run<()>,
) -> Result<Box<RawValue>, Failure> {
    let facts = super::facts(&run);
    let (control, stdout, stderr, waiting) = child::start(&executable, &facts)
        .map_err(|error| not_started(&executable, &error.to_string()))?;
    control.input(format!("{}\n", parameters.get()).into_bytes());
    control.end_input();

    let mut tail = Tail::default();
    let (mut output, mut timed_out) = (None, false);
    let ended = {
        let mut log_lines = 0;
        let mut ending = std::pin::pin!(waiting.ending());
        let mut printing = std::pin::pin!(read_bounded(stdout, executable.result_bytes));
        let mut logging = std::pin::pin!(for_each_line(stderr, |line| {
            // Before anything is cut off.
            let line = &*run.without_secrets(line);
            tail.add(line);
            log_lines += 1;
            if log_lines <= executable.log_lines {
                run.log(line);
            }
        }));
        let mut logged = false;
        let mut deadline = executable.timeout.map(|limit| Instant::now() + limit);
        let mut told = false;
        let ended = loop {
            let time_is_over = async {
                match deadline {
                    Some(at) => sleep_until(at).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                ended = &mut ending => break ended,
                done = &mut printing, if output.is_none() => {
                    if matches!(done, Output::TooMuch) {
                        control.kill();
                    }
                    output = Some(done);
                }
                () = &mut logging, if !logged => logged = true,
                // The engine drops this when the grace is over, which kills.
                () = run.cancelled(), if !told => {
                    told = true;
                    control.terminate();
                }
                () = time_is_over => {
                    if timed_out {
                        deadline = None;
                        control.kill();
                    } else {
                        timed_out = true;
                        deadline = Some(Instant::now() + executable.grace);
                        control.terminate();
                    }
                }
            }
        };
        let _ = timeout(OUTPUT_PATIENCE, async {
            if output.is_none() {
                output = Some((&mut printing).await);
            }
            if !logged {
                (&mut logging).await;
            }
        })
        .await;
        ended
    };
    let limit = executable.timeout.filter(|_| timed_out);
    verdict(&executable, &ended, output, limit, &tail, &run)
}

/// What the end of a process means for its task.
fn verdict(
    executable: &Executable,
    ended: &Ending,
    output: Option<Output>,
    timed_out: Option<Duration>,
    tail: &Tail,
    run: &Run<()>,
) -> Result<Box<RawValue>, Failure> {
    let failure = |name: &str, message: String| Failure::named(name, message);
    match ended {
        Ending::NotStarted(why) => return Err(not_started(executable, why)),
        Ending::Unsupervised => return Err(tail.of(failure("Unsupervised", said(ended)))),
        Ending::Exited(_) | Ending::Signalled(_) => {}
    }
    if let Some(limit) = timed_out {
        let message = format!("not finished after {}; {}", span(limit), said(ended));
        return Err(tail.of(failure("Timeout", message)));
    }
    let output = match output {
        Some(Output::Whole(bytes)) => bytes,
        Some(Output::TooMuch) => {
            let limit = count(executable.result_bytes, "byte");
            let message = format!(
                "it printed more than {limit} to its standard output, which is for the result alone, and was killed; print other words to the standard error"
            );
            return Err(tail.of(failure("ResultTooLong", message)));
        }
        None => {
            let message = "a process that it left behind keeps its standard output open".to_owned();
            return Err(tail.of(failure("ResultNotReadable", message)));
        }
    };
    let message =
        tail.last().map_or_else(|| said(ended), |last| format!("{}: {last}", said(ended)));
    match ended {
        Ending::Exited(0) => {
            result(&output, |text| run.without_secrets(text)).map_err(|failure| tail.of(failure))
        }
        Ending::Exited(DO_NOT_RETRY) => {
            Err(Failure::no_retry(tail.of(failure("ExitCode100", message))))
        }
        Ending::Exited(TRY_LATER) => {
            let later = tail.of(failure("ExitCode75", message));
            Err(match wanted_wait(&output) {
                Some(wait) => Failure::retry_after(later, wait),
                None => later,
            })
        }
        Ending::Exited(code) => Err(tail.of(failure(&format!("ExitCode{code}"), message))),
        _ => Err(tail.of(failure("KilledBySignal", message))),
    }
}

/// How a process ended, in words.
pub(super) fn said(ended: &Ending) -> String {
    match ended {
        Ending::Exited(code) => format!("exit code {code}"),
        Ending::Signalled(number) => match signal_name(*number) {
            Some(name) => format!("killed by signal {number} ({name})"),
            None => format!("killed by signal {number}"),
        },
        Ending::NotStarted(why) => format!("not started: {why}"),
        Ending::Unsupervised => {
            "the process that watches over it was killed, and it was killed too".to_owned()
        }
    }
}

fn signal_name(number: i32) -> Option<&'static str> {
    let names = [
        (1, "SIGHUP"),
        (2, "SIGINT"),
        (3, "SIGQUIT"),
        (4, "SIGILL"),
        (6, "SIGABRT"),
        (7, "SIGBUS"),
        (8, "SIGFPE"),
        (9, "SIGKILL"),
        (11, "SIGSEGV"),
        (13, "SIGPIPE"),
        (14, "SIGALRM"),
        (15, "SIGTERM"),
        (24, "SIGXCPU"),
        (25, "SIGXFSZ"),
    ];
    names.iter().find(|(its, _)| *its == number).map(|(_, name)| *name)
}

pub(super) fn not_started(executable: &Executable, why: &str) -> Failure {
    let program = executable.program.display();
    let advice = if why.contains("Exec format error") {
        "; the first line of a script must say what runs it, like #!/bin/sh"
    } else {
        ""
    };
    Failure::named("NotStarted", format!("{program} cannot be started: {why}{advice}"))
}

/// The result of a process that says it has done its work.
fn result(
    output: &[u8],
    without_secrets: impl Fn(&str) -> Cow<'_, str>,
) -> Result<Box<RawValue>, Failure> {
    let text = String::from_utf8_lossy(output);
    let text = match text.trim() {
        "" => "null",
        text => text,
    };
    serde_json::from_str(text).map_err(|error| {
        let text = without_secrets(text);
        let first: String = text.chars().take(FIRST_CHARS).collect();
        let more = if first.len() < text.len() { "…" } else { "" };
        let message = format!(
            "its standard output is not one JSON value ({error}): {first:?}{more}; print other words to the standard error"
        );
        Failure::named("ResultNotJson", message)
    })
}

/// `{"retry_after": "30s"}`, in place of a result.
fn wanted_wait(output: &[u8]) -> Option<Duration> {
    #[derive(Deserialize)]
    struct Later {
        retry_after: serde_json::Value,
    }
    let later: Later = serde_json::from_slice(output).ok()?;
    wait(&later.retry_after)
}

/// A duration in JSON: seconds, or a text like "30s".
pub(super) fn wait(value: &serde_json::Value) -> Option<Duration> {
    match value {
        serde_json::Value::String(text) => duration(text).ok(),
        serde_json::Value::Number(secs) => duration(&secs.to_string()).ok(),
        _ => None,
    }
}

async fn read_bounded(from: impl AsyncRead + Unpin, most: usize) -> Output {
    let mut bytes = Vec::new();
    let limit = u64::try_from(most).unwrap_or(u64::MAX).saturating_add(1);
    // An error is an end.
    let _ = from.take(limit).read_to_end(&mut bytes).await;
    if bytes.len() > most { Output::TooMuch } else { Output::Whole(bytes) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_result_is_one_json_value_or_nothing() {
        fn as_is(text: &str) -> Cow<'_, str> {
            Cow::Borrowed(text)
        }
        let text = |output: &[u8]| result(output, as_is).map(|raw| raw.get().to_owned());
        assert_eq!(text(b"").unwrap(), "null");
        assert_eq!(text(b" \n").unwrap(), "null");
        assert_eq!(
            text(b"{\"a\": 12345678901234567890}\n").unwrap(),
            "{\"a\": 12345678901234567890}"
        );
        for bad in [&b"hello"[..], b"1 2", b"{", b"\xff\xfe"] {
            assert_eq!(text(bad).unwrap_err().exception(), "ResultNotJson");
        }
        let long = text("x".repeat(1000).as_bytes()).unwrap_err();
        assert!(long.message().len() < 400 && long.message().contains("xxx\"…"), "{long:?}");
    }

    #[test]
    fn a_wait_is_seconds_or_a_duration() {
        let wanted = |text: &str| wanted_wait(text.as_bytes());
        assert_eq!(wanted(r#"{"retry_after": 2}"#), Some(Duration::from_secs(2)));
        assert_eq!(wanted(r#"{"retry_after": "1m"}"#), Some(Duration::from_secs(60)));
        for none in ["", "{}", "3", r#"{"retry_after": "soon"}"#, r#"{"retry_after": -1}"#] {
            assert_eq!(wanted(none), None, "{none}");
        }
    }
}
