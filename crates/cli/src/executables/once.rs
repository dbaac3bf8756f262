//! One process a task: parameters on the standard input, the result on the standard
//! output, the log on the standard error.

use std::sync::Arc;
use std::time::Duration;

use serde_json::value::RawValue;
use task_engine::{Context, Failure, LogLevel};
use task_engine_core::display::{count, span};
use task_engine_core::json::BYTES_MAX;
use task_engine_core::json::{InvalidJson, Json};
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::process::{ChildStderr, ChildStdout};
use tokio::time::{Instant, sleep_until, timeout};

use super::child::{self, ExitWaiter, ProcessControl, ProcessEnd};
use super::config::{DEPENDENCIES_VARIABLE, Executable};
use super::dependencies;
use super::log::{LogTail, for_each_line};
use super::resources::{ShortageWait, is_shortage, shortage_of};
use crate::times::duration;

/// Exit code: the task has failed, and must not be retried.
pub(crate) const DO_NOT_RETRY: i32 = 100;
/// Exit code: not now, but later (`EX_TEMPFAIL` of sysexits.h).
pub(crate) const SNOOZE: i32 = 75;

/// How long to read the output after a process has ended.
const OUTPUT_TIMEOUT: Duration = Duration::from_secs(1);
const FIRST_CHARS: usize = 100;
/// A control character in a JSON string, like \u001b.
const ESCAPED_BYTES_MAX: usize = 7;

type StartedProcess = (ProcessControl, ChildStdout, ChildStderr, ExitWaiter);

/// What the process printed as its result.
enum ResultOutput {
    Whole(Vec<u8>),
    TooMuch,
}

/// How one run of the program ended.
struct FinishedRun {
    ended: ProcessEnd,
    output: Option<ResultOutput>,
    timed_out: bool,
    tail: LogTail,
}

/// Runs one attempt.
pub(super) async fn run(
    executable: Arc<Executable>,
    parameters: Box<RawValue>,
    cx: Context<()>,
) -> Result<Box<RawValue>, Failure> {
    cx.keep_log_lines(executable.log_lines);
    let mut variables = super::variables(&cx);
    if let Some(ended) = dependencies::read(&cx, dependencies::VARIABLE_BYTES_MAX).await? {
        variables.push((DEPENDENCIES_VARIABLE, ended.get().to_owned()));
    }
    let mut shortage = ShortageWait::new();
    loop {
        let why = match child::start(executable.program(), &variables) {
            Ok(started) => {
                let finished = watch(&executable, &parameters, &cx, started).await;
                match &finished.ended {
                    ProcessEnd::NotStarted(number, why) if is_shortage(*number) => why.clone(),
                    _ => return attempt_result(&executable, finished, &cx),
                }
            }
            Err(error) => match shortage_of(&error) {
                Some(why) => why,
                None => return Err(not_started(&executable, &error.to_string())),
            },
        };
        shortage.wait(&why, &cx).await?;
    }
}

/// Passes the input to a program and reads its output until it has ended.
async fn watch(
    executable: &Executable,
    parameters: &RawValue,
    cx: &Context<()>,
    (control, stdout, stderr, waiting): StartedProcess,
) -> FinishedRun {
    control.input(format!("{}\n", parameters.get()).into_bytes());
    control.end_input();

    let mut tail = LogTail::default();
    let (mut output, mut timed_out) = (None, false);
    let ended = {
        let mut ending = std::pin::pin!(waiting.ending());
        let mut printing = std::pin::pin!(read_bounded(stdout, executable.result_bytes));
        let mut logging = std::pin::pin!(for_each_line(stderr, |line| {
            // Before anything is cut off.
            let line = &*cx.without_secrets(line);
            tail.add(line);
            cx.log(line);
        }));
        let mut logged = false;
        let mut deadline = executable.timeout.map(|limit| Instant::now() + limit);
        let mut terminated = false;
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
                    if matches!(done, ResultOutput::TooMuch) {
                        control.kill();
                    }
                    output = Some(done);
                }
                () = &mut logging, if !logged => logged = true,
                // The engine drops this when the grace is over, which kills.
                () = cx.cancelled(), if !terminated => {
                    terminated = true;
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
        let _ = timeout(OUTPUT_TIMEOUT, async {
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
    FinishedRun { ended, output, timed_out, tail }
}

/// The result of an attempt, by the end of its process.
fn attempt_result(
    executable: &Executable,
    FinishedRun { ended, output, timed_out, tail }: FinishedRun,
    cx: &Context<()>,
) -> Result<Box<RawValue>, Failure> {
    let failure = |name: &str, message: String| Failure::named(name, message);
    match &ended {
        ProcessEnd::NotStarted(_, why) => return Err(not_started(executable, why)),
        ProcessEnd::Unsupervised => return Err(tail.of(failure("Unsupervised", end_text(&ended)))),
        // It has no connection.
        ProcessEnd::Exited(_) | ProcessEnd::Signalled(_) | ProcessEnd::Disconnected => {}
    }
    if let Some(limit) = executable.timeout.filter(|_| timed_out) {
        let message = format!("not finished after {}; {}", span(limit), end_text(&ended));
        return Err(tail.of(failure("Timeout", message)));
    }
    let output = match output {
        Some(ResultOutput::Whole(bytes)) => bytes,
        Some(ResultOutput::TooMuch) => {
            let limit = count(executable.result_bytes, "byte");
            let message = format!(
                "it printed more than {limit} to its standard output, which is for the result only, and was killed; print other text to the standard error"
            );
            return Err(tail.of(failure("ResultTooLong", message)));
        }
        None => {
            let message = "a process that it left behind keeps its standard output open".to_owned();
            return Err(tail.of(failure("ResultNotReadable", message)));
        }
    };
    let message = tail
        .last()
        .map_or_else(|| end_text(&ended), |last| format!("{}: {last}", end_text(&ended)));
    match ended {
        ProcessEnd::Exited(0) => Ok(result(&output)),
        ProcessEnd::Exited(DO_NOT_RETRY) => {
            Err(Failure::no_retry(tail.of(failure("ExitCode100", message))))
        }
        ProcessEnd::Exited(SNOOZE) => Err(snoozed(executable, &output, message, cx)),
        ProcessEnd::Exited(1) => {
            Err(tail.uncaught().unwrap_or_else(|| tail.of(failure("ExitCode1", message))))
        }
        ProcessEnd::Exited(code) => Err(tail.of(failure(&format!("ExitCode{code}"), message))),
        _ => Err(tail.of(failure("KilledBySignal", message))),
    }
}

/// The task is postponed, and uses no retry.
fn snoozed(executable: &Executable, output: &[u8], reason: String, cx: &Context<()>) -> Failure {
    let rule = executable.retry.first_delay;
    let wanted = match wanted_wait(output) {
        Ok(wanted) => wanted.unwrap_or(WantedWait::Snooze(rule)),
        Err(wrong) => {
            let wrong = format!(
                "exit code 75: {wrong}; print {{\"snooze\": \"30s\"}} to say when. It waits {}, the first_delay of its class",
                span(rule)
            );
            cx.log_at(LogLevel::Warn, wrong);
            WantedWait::Snooze(rule)
        }
    };
    match wanted {
        WantedWait::Snooze(time) => Failure::snooze_because(time, reason),
        WantedWait::RateLimited(time) => Failure::rate_limited_because(time, reason),
    }
}

/// How a process ended, as text.
pub(super) fn end_text(ended: &ProcessEnd) -> String {
    match ended {
        ProcessEnd::Exited(code) => format!("exit code {code}"),
        ProcessEnd::Signalled(number) => match signal_name(*number) {
            Some(name) => format!("killed by signal {number} ({name})"),
            None => format!("killed by signal {number}"),
        },
        ProcessEnd::NotStarted(_, why) => format!("not started: {why}"),
        ProcessEnd::Unsupervised => "its supervisor was killed, and it was killed, too".to_owned(),
        ProcessEnd::Disconnected => "disconnected".to_owned(),
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
    let program = executable.program().path.display();
    let advice = if why.contains("Exec format error") {
        "; the first line of a script must name its interpreter, like #!/bin/sh"
    } else {
        ""
    };
    Failure::named("NotStarted", format!("{program} cannot be started: {why}{advice}"))
}

/// The result of a process that exited with 0: a JSON value, or the text that it
/// printed, as a JSON string.
fn result(output: &[u8]) -> Box<RawValue> {
    let text = String::from_utf8_lossy(output);
    let whole = match text.trim() {
        "" => "null",
        whole => whole,
    };
    // JSON that no store keeps is stored as text: the task has succeeded.
    let json = Json::parse(whole).or_else(|_| json_string_of(text.trim_end()));
    let json = json.unwrap_or_else(|_| Json::null());
    serde_json::from_str(json.as_str()).unwrap_or_else(|_| RawValue::NULL.to_owned())
}

/// A text that stores can keep. As a JSON string it may be longer than it was, so
/// what does not fit is cut.
fn json_string_of(text: &str) -> Result<Json, InvalidJson> {
    let text = text.replace('\0', "\u{2400}");
    Json::encode(&text).or_else(|_| {
        let most = BYTES_MAX / ESCAPED_BYTES_MAX;
        let cut = (0..=most.min(text.len())).rev().find(|at| text.is_char_boundary(*at));
        let kept = &text[..cut.unwrap_or(0)];
        Json::encode(&format!("{kept}… ({} bytes in all)", text.len()))
    })
}

/// How a process that exited with 75 wants to wait.
#[derive(Debug, PartialEq, Eq)]
enum WantedWait {
    /// The task is postponed.
    Snooze(Duration),
    /// The same, and the keys of its limits are closed for this time.
    RateLimited(Duration),
}

/// `{"snooze": "30s"}`, `{"retry_after": 30}` or `{"rate_limited": "30s"}` in place of a
/// result: when to run again, if given, or an error.
fn wanted_wait(output: &[u8]) -> Result<Option<WantedWait>, String> {
    let text = String::from_utf8_lossy(output);
    let text = text.trim();
    if text.is_empty() {
        return Ok(None);
    }
    let first: String = text.chars().take(FIRST_CHARS).collect();
    let Ok(object) = serde_json::from_str::<serde_json::Map<String, serde_json::Value>>(text)
    else {
        return Err(format!("its standard output {first:?} is not a JSON object"));
    };
    let closes_keys = object.contains_key("rate_limited");
    let keys = ["rate_limited", "snooze", "retry_after"];
    let Some(value) = keys.into_iter().find_map(|key| object.get(key)) else {
        return Err(format!("its standard output {first:?} has no \"snooze\""));
    };
    let time = wait(value).ok_or_else(|| format!("{value} is not a time"))?;
    Ok(Some(if closes_keys { WantedWait::RateLimited(time) } else { WantedWait::Snooze(time) }))
}

/// A duration in JSON: seconds, or a text like "30s".
pub(super) fn wait(value: &serde_json::Value) -> Option<Duration> {
    match value {
        serde_json::Value::String(text) => duration(text).ok(),
        serde_json::Value::Number(secs) => duration(&secs.to_string()).ok(),
        _ => None,
    }
}

async fn read_bounded(from: impl AsyncRead + Unpin, most: usize) -> ResultOutput {
    let mut bytes = Vec::new();
    let limit = u64::try_from(most).unwrap_or(u64::MAX).saturating_add(1);
    // An error is an end.
    let _ = from.take(limit).read_to_end(&mut bytes).await;
    if bytes.len() > most { ResultOutput::TooMuch } else { ResultOutput::Whole(bytes) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn result_is_json_or_text() {
        let text = |output: &[u8]| result(output).get().to_owned();
        for (output, kept) in [
            (&b""[..], "null"),
            (b" \n", "null"),
            (b"{\"a\": 12345678901234567890}\n", "{\"a\": 12345678901234567890}"),
            (b"7\n", "7"),
            (b"ok\n", "\"ok\""),
            (b"one\n  two\n\n", "\"one\\n  two\""),
            (b"1 2", "\"1 2\""),
            (b"{", "\"{\""),
            (b"\xff\xfe", "\"\u{fffd}\u{fffd}\""),
            (b"a\0b", "\"a\u{2400}b\""),
        ] {
            assert_eq!(text(output), kept, "{output:?}");
        }
        let deep = format!("{}{}", "[".repeat(100), "]".repeat(100));
        assert_eq!(text(deep.as_bytes()), format!("\"{deep}\""), "no store keeps it otherwise");
        let long = text("\u{1}".repeat(BYTES_MAX).as_bytes());
        assert!(long.len() <= BYTES_MAX && long.contains("bytes in all"), "{}", long.len());
    }

    #[test]
    fn wait_is_seconds_or_duration() {
        let wanted = |text: &str| wanted_wait(text.as_bytes());
        let secs = |secs| Ok(Some(WantedWait::Snooze(Duration::from_secs(secs))));
        let limited = WantedWait::RateLimited(Duration::from_secs(30));
        assert_eq!(wanted(r#"{"rate_limited": "30s"}"#), Ok(Some(limited)));
        assert_eq!(wanted(r#"{"retry_after": 2}"#), secs(2));
        assert_eq!(wanted(r#"{"snooze": "1m"}"#), secs(60));
        assert_eq!(wanted(" "), Ok(None));
        for (nonsense, why) in [
            ("{}", "has no \"snooze\""),
            ("3", "is not a JSON object"),
            ("busy", "is not a JSON object"),
            (r#"{"snooze": "soon"}"#, "\"soon\" is not a time"),
            (r#"{"retry_after": -1}"#, "-1 is not a time"),
        ] {
            let wrong = wanted(nonsense).unwrap_err();
            assert!(wrong.contains(why), "{nonsense}: {wrong}");
        }
    }
}
