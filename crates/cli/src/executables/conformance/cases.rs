//! The cases of the check.

use std::time::Duration;

use serde_json::{Value, json};
use task_engine_core::display::brief;

use super::dialogue::{Dialogue, shown};
use crate::executables::child::ProcessEnd;
use crate::executables::once;

/// How many tasks at a time are tried at most.
const TOGETHER_MAX: usize = 50;
const LOG_LINES: u64 = 10_000;

/// A property of a worker. Those with classes need them announced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Case {
    UnknownClass,
    UnknownLines,
    Echo,
    LargeParameters,
    Together,
    Info,
    Dependencies,
    Failure,
    FailureForGood,
    FailureLater,
    Snooze,
    RateLimited,
    Log,
    LongLog,
    Print,
    Progress,
    Cancel,
    CancelTogether,
    Steps,
    RecordedSteps,
    FailedRequest,
    Sleep,
    Suspended,
    Wait,
    Call,
    EndWithTasks,
    End,
    Exit,
}

impl Case {
    pub(super) const ALL: [Self; 28] = [
        Self::UnknownClass,
        Self::UnknownLines,
        Self::Echo,
        Self::LargeParameters,
        Self::Together,
        Self::Info,
        Self::Dependencies,
        Self::Failure,
        Self::FailureForGood,
        Self::FailureLater,
        Self::Snooze,
        Self::RateLimited,
        Self::Log,
        Self::LongLog,
        Self::Print,
        Self::Progress,
        Self::Cancel,
        Self::CancelTogether,
        Self::Steps,
        Self::RecordedSteps,
        Self::FailedRequest,
        Self::Sleep,
        Self::Suspended,
        Self::Wait,
        Self::Call,
        Self::EndWithTasks,
        Self::End,
        Self::Exit,
    ];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::UnknownClass => "an unknown class is an error",
            Self::UnknownLines => "unknown lines are ignored",
            Self::Echo => "values are unchanged",
            Self::LargeParameters => "1 MiB of parameters",
            Self::Together => "as many tasks at a time as it takes",
            Self::Info => "a task knows its attempt",
            Self::Dependencies => "a task reads its dependencies",
            Self::Failure => "an exception is an error",
            Self::FailureForGood => "an error without a retry",
            Self::FailureLater => "an error with a later retry",
            Self::Snooze => "a postponed task",
            Self::RateLimited => "a rate limited task",
            Self::Log => "log lines",
            Self::LongLog => "10,000 log lines",
            Self::Print => "printed text is no line of the protocol",
            Self::Progress => "progress",
            Self::Cancel => "a cancelled task ends",
            Self::CancelTogether => "one cancelled task among others",
            Self::Steps => "steps run once",
            Self::RecordedSteps => "recorded steps do not run",
            Self::FailedRequest => "an attempt that ended is silent",
            Self::Sleep => "a sleep",
            Self::Suspended => "a suspended task is silent",
            Self::Wait => "a wait for a signal",
            Self::Call => "a child task",
            Self::EndWithTasks => "running tasks finish after the end of the input",
            Self::End => "it exits after the end of the input",
            Self::Exit => "a process may exit",
        }
    }

    /// The classes that it needs.
    pub(super) fn classes(self) -> &'static [&'static str] {
        match self {
            Self::UnknownClass | Self::UnknownLines | Self::End => &[],
            Self::Echo | Self::LargeParameters | Self::Together | Self::EndWithTasks => {
                &["check.echo"]
            }
            Self::Info => &["check.info"],
            Self::Dependencies => &["check.dependencies"],
            Self::Failure => &["check.fail"],
            Self::FailureForGood => &["check.fail_for_good"],
            Self::FailureLater => &["check.fail_later"],
            Self::Snooze => &["check.snooze"],
            Self::RateLimited => &["check.rate_limited"],
            Self::Log | Self::LongLog => &["check.log"],
            Self::Print => &["check.print", "check.echo"],
            Self::Progress => &["check.progress"],
            Self::Cancel => &["check.wait_for_cancel"],
            Self::CancelTogether => &["check.wait_for_cancel", "check.echo"],
            Self::Steps | Self::RecordedSteps => &["check.step"],
            Self::FailedRequest => &["check.step", "check.echo"],
            Self::Sleep => &["check.sleep"],
            Self::Suspended => &["check.sleep", "check.echo"],
            Self::Wait => &["check.wait"],
            Self::Call => &["check.call"],
            Self::Exit => &["check.exit", "check.echo"],
        }
    }

    /// Whether it starts with a new process, since the one before has ended.
    pub(super) fn needs_own_process(self) -> bool {
        matches!(self, Self::End | Self::Exit)
    }

    pub(super) async fn run(self, worker: &mut Dialogue) -> Result<(), String> {
        match self {
            Self::UnknownClass => unknown_class(worker).await,
            Self::UnknownLines => unknown_lines(worker).await,
            Self::Echo => echo(worker).await,
            Self::LargeParameters => large_parameters(worker).await,
            Self::Together => together(worker).await,
            Self::Info => info(worker).await,
            Self::Dependencies => dependencies(worker).await,
            Self::Failure => failure(worker, "check.fail", None).await,
            Self::FailureForGood => {
                failure(worker, "check.fail_for_good", Some(json!(false))).await
            }
            Self::FailureLater => failure(worker, "check.fail_later", Some(json!("30s"))).await,
            Self::Snooze => postponed(worker, "snooze").await,
            Self::RateLimited => postponed(worker, "rate_limited").await,
            Self::Log => log(worker, 3).await,
            Self::LongLog => log(worker, LOG_LINES).await,
            Self::Print => print(worker).await,
            Self::Progress => progress(worker).await,
            Self::Cancel => cancel(worker).await,
            Self::CancelTogether => cancel_together(worker).await,
            Self::Steps => steps(worker).await,
            Self::RecordedSteps => recorded_steps(worker).await,
            Self::FailedRequest => failed_request(worker).await,
            Self::Sleep => sleep(worker).await,
            Self::Suspended => suspended(worker).await,
            Self::Wait => wait(worker).await,
            Self::Call => call(worker).await,
            Self::EndWithTasks => end_with_tasks(worker).await,
            Self::End => end(worker).await,
            Self::Exit => exit(worker).await,
        }
    }
}

fn equal(what: &str, found: &Value, expected: &Value) -> Result<(), String> {
    if found == expected {
        return Ok(());
    }
    Err(format!("{what}: expected {}, got {}", shown(expected), shown(found)))
}

async fn unknown_class(worker: &mut Dialogue) -> Result<(), String> {
    let id = worker.task("check.a class that nothing announces", &json!({}));
    let (answer, _) = worker.answer(&id).await?;
    match answer.get("error") {
        Some(error) if !error.is_null() => Ok(()),
        _ => Err(format!("it answered without an error: {}", shown(&answer))),
    }
}

async fn unknown_lines(worker: &mut Dialogue) -> Result<(), String> {
    worker.send(&json!({ "line_of_a_later_version": 1 }));
    worker.send(&json!({ "cancel": "0.0" }));
    worker.send(&json!({ "id": "0.0", "ended": "before", "message": "" }));
    // It still answers.
    unknown_class(worker).await
}

async fn echo(worker: &mut Dialogue) -> Result<(), String> {
    for value in [
        json!(null),
        json!(true),
        json!(0),
        json!(-1.5),
        json!(9_007_199_254_740_991_i64),
        json!(""),
        json!("line\nline\r\n\ttab \"quoted\" \\ \u{2028} é 漢字 🦀 \u{7f}"),
        json!([]),
        json!({}),
        json!({ "a": [1, { "b": null }], "é": "ü", "__proto__": 1 }),
    ] {
        let id = worker.task("check.echo", &json!({ "value": value }));
        equal("the result", &worker.result(&id).await?, &value)?;
    }
    Ok(())
}

async fn large_parameters(worker: &mut Dialogue) -> Result<(), String> {
    let value = json!("é".repeat(500_000));
    let id = worker.task("check.echo", &json!({ "value": value }));
    if worker.result(&id).await? == value { Ok(()) } else { Err("the text has changed".to_owned()) }
}

async fn together(worker: &mut Dialogue) -> Result<(), String> {
    let number = worker.concurrency.min(TOGETHER_MAX);
    let ids: Vec<_> =
        (0..number).map(|n| worker.task("check.echo", &json!({ "value": n }))).collect();
    for (n, id) in ids.iter().enumerate() {
        equal("the result", &worker.result(id).await?, &json!(n))?;
    }
    Ok(())
}

async fn info(worker: &mut Dialogue) -> Result<(), String> {
    let more = json!({ "attempt": 3, "retry_number": 2 });
    let id = worker.task_with("check.info", &json!({}), &more);
    let task_id: i64 = id.split('.').next().and_then(|id| id.parse().ok()).unwrap_or_default();
    let expected = json!({
        "task_id": task_id,
        "attempt": 3,
        "retry_number": 2,
        "class": "check.info",
        "correlation_id": format!("check {task_id}"),
    });
    equal("the result", &worker.result(&id).await?, &expected)
}

async fn dependencies(worker: &mut Dialogue) -> Result<(), String> {
    let dependencies = json!({
        "extract": { "task_id": 7, "class": "extract", "status": "stopped", "result": { "rows": 3 } },
        "notify": { "task_id": 8, "class": "notify", "status": "failed", "error": {
            "exception": "E", "message": "m", "backtrace": [] } },
    });
    let more = json!({ "dependencies": dependencies });
    let id = worker.task_with("check.dependencies", &json!({}), &more);
    equal("the result", &worker.result(&id).await?, &dependencies)
}

async fn failure(worker: &mut Dialogue, class: &str, retry: Option<Value>) -> Result<(), String> {
    let message = "no \"luck\" today: é";
    let parameters = match &retry {
        Some(Value::String(time)) => json!({ "message": message, "time": time }),
        _ => json!({ "message": message }),
    };
    let id = worker.task(class, &parameters);
    let (answer, _) = worker.answer(&id).await?;
    let error = &answer["error"];
    equal("the message", &error["message"], &json!(message))?;
    if error["exception"].as_str().is_none_or(str::is_empty) {
        return Err(format!("the error has no exception: {}", shown(error)));
    }
    match (retry, answer.get("retry")) {
        (None, None | Some(Value::Bool(true) | Value::Null)) => {
            let backtrace = match &error["backtrace"] {
                Value::String(text) => text.clone(),
                other => other.to_string(),
            };
            if backtrace.len() < 5 {
                return Err(format!("the error has no backtrace: {}", shown(error)));
            }
            Ok(())
        }
        (Some(Value::Bool(expected)), Some(Value::Bool(found))) if *found == expected => Ok(()),
        (Some(Value::String(_)), Some(found)) if is_thirty_seconds(found) => Ok(()),
        (expected, found) => Err(format!(
            "its retry is {}, and should be {}",
            found.map_or_else(|| "not set".to_owned(), shown),
            expected.as_ref().map_or_else(|| "not set".to_owned(), shown)
        )),
    }
}

fn is_thirty_seconds(value: &Value) -> bool {
    once::wait(value) == Some(Duration::from_secs(30))
}

async fn postponed(worker: &mut Dialogue, kind: &str) -> Result<(), String> {
    let parameters = json!({ "message": "busy", "time": "30s" });
    let id = worker.task(&format!("check.{kind}"), &parameters);
    let (answer, _) = worker.answer(&id).await?;
    if !answer.get(kind).is_some_and(is_thirty_seconds) {
        return Err(format!("its answer has no {kind} of 30 s: {}", shown(&answer)));
    }
    equal("the message", &answer["message"], &json!("busy"))
}

async fn log(worker: &mut Dialogue, lines: u64) -> Result<(), String> {
    let id = worker.task("check.log", &json!({ "lines": lines }));
    let (answer, before) = worker.answer(&id).await?;
    equal("the result", &answer["result"], &json!(lines))?;
    let mut logged = Vec::new();
    for line in before.iter().chain([&answer]) {
        match &line["log"] {
            Value::Null => {}
            Value::String(text) => logged.extend(text.lines().map(str::to_owned)),
            Value::Array(texts) => {
                let texts = texts.iter().filter_map(Value::as_str);
                logged.extend(texts.flat_map(str::lines).map(str::to_owned));
            }
            other => {
                return Err(format!("a log that is neither a text nor a list: {}", shown(other)));
            }
        }
    }
    let wrong = (1..=lines).zip(&logged).find(|(n, line)| **line != format!("line {n}"));
    match wrong {
        Some((n, line)) => Err(format!("log line {n} is {:?}", brief(line, 100))),
        None if logged.len() as u64 != lines => {
            Err(format!("it sent {} of {lines} log lines before its answer", logged.len()))
        }
        None => Ok(()),
    }
}

async fn print(worker: &mut Dialogue) -> Result<(), String> {
    let id = worker.task("check.print", &json!({ "text": "hello {\"id\": 1}" }));
    equal("the result", &worker.result(&id).await?, &Value::Null)?;
    // The text, had it been printed, would have come by now.
    let id = worker.task("check.echo", &json!({ "value": 1 }));
    equal("the result", &worker.result(&id).await?, &json!(1))
}

async fn progress(worker: &mut Dialogue) -> Result<(), String> {
    let id = worker.task("check.progress", &json!({ "percent": 40, "message": "halfway" }));
    let (_, before) = worker.answer(&id).await?;
    let Some(line) = before.iter().find(|line| line.get("progress").is_some()) else {
        return Err("it sent no progress before its answer".to_owned());
    };
    if line["progress"].as_f64() != Some(40.0) {
        return Err(format!("the progress is {}, and should be 40", shown(&line["progress"])));
    }
    equal("the message", &line["message"], &json!("halfway"))
}

async fn cancel(worker: &mut Dialogue) -> Result<(), String> {
    let id = worker.task("check.wait_for_cancel", &json!({}));
    worker.send(&json!({ "cancel": id }));
    worker.answer(&id).await.map(drop)
}

async fn cancel_together(worker: &mut Dialogue) -> Result<(), String> {
    if worker.concurrency < 2 {
        return cancel(worker).await;
    }
    let number = worker.concurrency.min(TOGETHER_MAX);
    let mut ids: Vec<_> =
        (1..number).map(|_| worker.task("check.wait_for_cancel", &json!({}))).collect();
    // The last slot is free for others.
    let echo = worker.task("check.echo", &json!({ "value": 1 }));
    worker.result(&echo).await?;
    while let Some(id) = ids.pop() {
        worker.send(&json!({ "cancel": id }));
        worker.answer(&id).await?;
    }
    Ok(())
}

/// The next request of an attempt, of this kind.
async fn request(worker: &mut Dialogue, id: &str, kind: &str) -> Result<Value, String> {
    let line = worker.next(id).await?;
    if line.get(kind).is_none() {
        return Err(format!("it sent no {kind}: {}", shown(&line)));
    }
    Ok(line)
}

async fn steps(worker: &mut Dialogue) -> Result<(), String> {
    let values = [json!("a"), json!(null), json!({ "b": [1] })];
    let id = worker.task("check.step", &json!({ "values": values }));
    let mut recorded = Vec::new();
    for (n, value) in values.iter().enumerate() {
        let asked = request(worker, &id, "step").await?;
        equal("the name of the step", &asked["step"], &json!("value"))?;
        if asked.get("result").is_some() {
            return Err(format!(
                "it sent a result before it had asked for the step: {}",
                shown(&asked)
            ));
        }
        let name = if n == 0 { "value".to_owned() } else { format!("value#{}", n + 1) };
        worker.send(&json!({ "id": id, "step": name, "run": true }));
        let done = request(worker, &id, "step").await?;
        equal("the name of the step", &done["step"], &json!(name))?;
        equal("the result of the step", &done["result"], value)?;
        if done.get("result").is_none() {
            return Err(format!("it sent no result of the step: {}", shown(&done)));
        }
        // What is recorded counts, also if another attempt has recorded it.
        let counts = if n == 2 { json!("of another attempt") } else { value.clone() };
        worker.send(&json!({ "id": id, "step": name, "recorded": counts }));
        recorded.push(counts);
    }
    equal("the result", &worker.result(&id).await?, &json!(recorded))
}

async fn recorded_steps(worker: &mut Dialogue) -> Result<(), String> {
    let id = worker.task("check.step", &json!({ "values": ["a", "b"] }));
    for (name, recorded) in [("value", json!(null)), ("value#2", json!([2]))] {
        let asked = request(worker, &id, "step").await?;
        equal("the name of the step", &asked["step"], &json!("value"))?;
        worker.send(&json!({ "id": id, "step": name, "recorded": recorded }));
    }
    equal("the result", &worker.result(&id).await?, &json!([null, [2]]))
}

/// Several tasks, so that what comes late would have come.
async fn silence(worker: &mut Dialogue) -> Result<(), String> {
    for n in 0..3 {
        let id = worker.task("check.echo", &json!({ "value": n }));
        worker.result(&id).await?;
    }
    together(worker).await
}

async fn failed_request(worker: &mut Dialogue) -> Result<(), String> {
    let id = worker.task("check.step", &json!({ "values": [1, 2] }));
    request(worker, &id, "step").await?;
    worker.end(&id, "failed", "MalformedRequest: as a check");
    silence(worker).await
}

async fn sleep(worker: &mut Dialogue) -> Result<(), String> {
    let id = worker.task("check.sleep", &json!({ "time": "30s" }));
    let asked = request(worker, &id, "sleep").await?;
    equal("the name of the sleep", &asked["sleep"], &json!("pause"))?;
    if !asked.get("for").is_some_and(is_thirty_seconds) {
        return Err(format!("it sleeps for {}, and should for 30 s", shown(&asked["for"])));
    }
    worker.send(&json!({ "id": id, "sleep": "pause", "over": true }));
    equal("the result", &worker.result(&id).await?, &json!("awake"))
}

async fn suspended(worker: &mut Dialogue) -> Result<(), String> {
    let number = worker.concurrency.min(TOGETHER_MAX);
    for _ in 0..number {
        let id = worker.task("check.sleep", &json!({ "time": "3d" }));
        request(worker, &id, "sleep").await?;
        worker.end(&id, "suspended", "sleeps");
    }
    silence(worker).await
}

async fn wait(worker: &mut Dialogue) -> Result<(), String> {
    for (answer, expected) in [
        (json!({ "signal": { "by": "Ada" } }), json!({ "by": "Ada" })),
        (json!({ "signal": null }), json!(null)),
        (json!({ "timed_out": true }), json!("timed out")),
    ] {
        let id = worker.task("check.wait", &json!({ "timeout": "30s" }));
        let asked = request(worker, &id, "wait").await?;
        equal("the name of the signal", &asked["wait"], &json!("approved"))?;
        if !asked.get("timeout").is_some_and(is_thirty_seconds) {
            return Err(format!("its timeout is {}, and should be 30 s", shown(&asked["timeout"])));
        }
        let mut line = json!({ "id": id, "wait": "approved" });
        if let (Value::Object(line), Value::Object(answer)) = (&mut line, answer) {
            line.extend(answer);
        }
        worker.send(&line);
        equal("the result", &worker.result(&id).await?, &expected)?;
    }
    Ok(())
}

async fn call(worker: &mut Dialogue) -> Result<(), String> {
    let failed = json!({ "task_id": 9, "status": "failed", "error": {
        "exception": "ValueError", "message": "too heavy", "backtrace": [] } });
    for (outcome, expected) in [
        (json!({ "task_id": 8, "status": "stopped", "result": [1] }), json!([1])),
        (failed, json!("failed: too heavy")),
    ] {
        let parameters = json!({ "class": "child", "parameters": { "n": 1 } });
        let id = worker.task("check.call", &parameters);
        let asked = request(worker, &id, "call").await?;
        let [child] = asked["tasks"].as_array().map(Vec::as_slice).unwrap_or_default() else {
            return Err(format!("it calls not one child: {}", shown(&asked)));
        };
        equal("the class of the child", &child["class"], &json!("child"))?;
        equal("the parameters of the child", &child["parameters"], &json!({ "n": 1 }))?;
        worker.send(&json!({ "id": id, "call": asked["call"], "results": [outcome] }));
        equal("the result", &worker.result(&id).await?, &expected)?;
    }
    Ok(())
}

async fn end_with_tasks(worker: &mut Dialogue) -> Result<(), String> {
    let number = worker.concurrency.min(TOGETHER_MAX);
    let ids: Vec<_> =
        (0..number).map(|n| worker.task("check.echo", &json!({ "value": n }))).collect();
    worker.end_input();
    for id in &ids {
        worker.result(id).await?;
    }
    expect_exit(worker, 0).await
}

async fn end(worker: &mut Dialogue) -> Result<(), String> {
    worker.end_input();
    expect_exit(worker, 0).await
}

async fn exit(worker: &mut Dialogue) -> Result<(), String> {
    worker.task("check.exit", &json!({ "code": 3 }));
    expect_exit(worker, 3).await
}

async fn expect_exit(worker: &mut Dialogue, code: i32) -> Result<(), String> {
    match worker.ending().await? {
        ProcessEnd::Exited(found) if found == code => Ok(()),
        other => Err(format!(
            "it ended with {}, and should with exit code {code}",
            once::end_text(&other)
        )),
    }
}
