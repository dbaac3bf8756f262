//! The durable calls of a process: steps, sleeps, waits and child tasks. What it may ask
//! for is in `durable/request.rs`; this serves it.

mod request;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use serde::Serialize;
use serde_json::value::RawValue;
use task_engine::{Context, Failure, TaskOptions};
use task_engine_core::attempt::TaskError;
use task_engine_core::display::{brief, count};
use task_engine_core::json::Json;
use task_engine_core::step::ChildOutcome;
use task_engine_core::task::{NewTask, TaskId, TaskStatus};

use self::request::ChildTask;
pub(super) use self::request::{DurableRequest, KINDS, parse};
use super::protocol;

/// The options of the classes in the file, for the child tasks that processes create.
pub(super) type ClassOptions = Arc<HashMap<String, TaskOptions>>;

/// The durable calls of one attempt.
pub(super) struct DurableCalls<'a> {
    id: &'a str,
    cx: &'a Context<()>,
    result_bytes_max: usize,
    options: &'a ClassOptions,
    /// The steps that the process runs, by their recorded names.
    begun: HashMap<String, Instant>,
}

impl<'a> DurableCalls<'a> {
    pub(super) fn new(
        id: &'a str,
        cx: &'a Context<()>,
        result_bytes_max: usize,
        options: &'a ClassOptions,
    ) -> Self {
        Self { id, cx, result_bytes_max, options, begun: HashMap::new() }
    }

    /// The line that answers a request; an error if the attempt ends: its task is
    /// suspended, or the request is impossible.
    pub(super) async fn serve(
        &mut self,
        request: Result<DurableRequest, String>,
    ) -> Result<Vec<u8>, Failure> {
        let request = request.map_err(|why| malformed(&why))?;
        match request {
            DurableRequest::BeginStep(name) => self.begin_step(&name).await,
            DurableRequest::EndStep(name, result) => self.end_step(&name, &result).await,
            DurableRequest::Sleep(name, time) => {
                self.cx.sleep_raw(&name, time).await?;
                protocol::line(&SleepAnswer { id: self.id, sleep: &name, over: true })
            }
            DurableRequest::Wait(name, timeout) => {
                let signal = self.cx.wait_raw(&name, timeout).await?;
                let timed_out = signal.timed_out.then_some(true);
                let payload = if signal.timed_out { None } else { Some(&signal.payload) };
                let (id, wait) = (self.id, &signal.name);
                protocol::line(&WaitAnswer { id, wait, signal: payload, timed_out })
            }
            DurableRequest::Call(name, tasks) => {
                let tasks = tasks.into_iter().map(|task| self.child(task));
                let tasks =
                    tasks.collect::<Result<_, String>>().map_err(|why: String| malformed(&why))?;
                let outcomes = self.cx.call_raw(&name, tasks).await?;
                let results = outcomes.iter().map(ChildAnswer::of).collect();
                protocol::line(&CallAnswer { id: self.id, call: &name, results })
            }
        }
    }

    /// The line that tells the process that this attempt has ended.
    pub(super) fn ended(&self, end: &Failure) -> Vec<u8> {
        ended(self.id, end)
    }

    async fn begin_step(&mut self, name: &str) -> Result<Vec<u8>, Failure> {
        let (name, recorded) = self.cx.begin_step_raw(name).await?;
        let run = recorded.is_none().then_some(true);
        let recorded = recorded.as_ref();
        let answer = protocol::line(&StepAnswer { id: self.id, step: &name, recorded, run });
        if run.is_some() {
            self.begun.insert(name, Instant::now());
        }
        answer
    }

    async fn end_step(&mut self, name: &str, result: &RawValue) -> Result<Vec<u8>, Failure> {
        let Some(begun) = self.begun.remove(name) else {
            let name = brief(name, 40);
            return Err(malformed(&format!(
                "a result of step {name:?}, which it does not run; ask for the step first, and send its result once, with the name in the engine's line"
            )));
        };
        if result.get().len() > self.result_bytes_max {
            let limit = count(self.result_bytes_max, "byte");
            let message = format!(
                "the result of step {name:?} is longer than {limit}; keep the data elsewhere and record a reference"
            );
            return Err(Failure::named("ResultTooLong", message));
        }
        let result = Json::parse(result.get()).map_err(|why| {
            let message = format!("the result of step {name:?} cannot be stored: {why}");
            Failure::no_retry(Failure::named("StepNotStorable", message))
        })?;
        let recorded = self.cx.end_step_raw(name, result, begun.elapsed()).await?;
        let (id, recorded) = (self.id, Some(&recorded));
        protocol::line(&StepAnswer { id, step: name, recorded, run: None })
    }

    /// A child task, with the options of its class in the file.
    fn child(&self, child: ChildTask) -> Result<NewTask, String> {
        let default = TaskOptions::default();
        let options = self.options.get(&child.class).unwrap_or(&default);
        let parameters = match &child.parameters {
            Some(parameters) => Json::parse(parameters.get()).map_err(|why| {
                format!("parameters of a {} that are {why}", brief(&child.class, 40))
            })?,
            None => Json::empty_object(),
        };
        let queue = child.queue.unwrap_or_else(|| options.queue.clone());
        NewTask::new(child.class, parameters)
            .and_then(|task| task.queue(queue)?.secret(&options.secret))
            .map(|task| task.priority(child.priority.unwrap_or(options.priority)))
            .map_err(|why| format!("a task that cannot be created: {why}"))
    }
}

/// Tells a process that an attempt has ended in a durable call.
pub(super) fn ended(id: &str, end: &Failure) -> Vec<u8> {
    match end.snoozes() {
        Some(_) => ended_line(id, "suspended", end.message()),
        None => ended_line(id, "failed", &end.to_string()),
    }
}

/// Tells a process that it has asked for something after the end of the attempt.
pub(super) fn ended_before(id: &str) -> Vec<u8> {
    ended_line(id, "before", "the attempt had ended before this request")
}

fn ended_line(id: &str, ended: &str, message: &str) -> Vec<u8> {
    let line = serde_json::json!({ "id": id, "ended": ended, "message": message });
    format!("{line}\n").into_bytes()
}

fn malformed(why: &str) -> Failure {
    Failure::named("MalformedRequest", format!("its process sent {why}"))
}

#[derive(Serialize)]
struct StepAnswer<'a> {
    id: &'a str,
    step: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    recorded: Option<&'a Json>,
    #[serde(skip_serializing_if = "Option::is_none")]
    run: Option<bool>,
}

#[derive(Serialize)]
struct SleepAnswer<'a> {
    id: &'a str,
    sleep: &'a str,
    over: bool,
}

#[derive(Serialize)]
struct WaitAnswer<'a> {
    id: &'a str,
    wait: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    signal: Option<&'a Json>,
    #[serde(skip_serializing_if = "Option::is_none")]
    timed_out: Option<bool>,
}

#[derive(Serialize)]
struct CallAnswer<'a> {
    id: &'a str,
    call: &'a str,
    results: Vec<ChildAnswer<'a>>,
}

#[derive(Serialize)]
struct ChildAnswer<'a> {
    task_id: TaskId,
    status: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    result: Option<&'a Json>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<&'a TaskError>,
}

impl<'a> ChildAnswer<'a> {
    fn of(child: &'a ChildOutcome) -> Self {
        Self {
            task_id: child.id,
            status: child.status.map_or("removed", TaskStatus::as_str),
            result: child.result.as_ref(),
            error: child.error.as_ref(),
        }
    }
}
