//! The first line of a worker: its classes, with their options. A worker of the file
//! without `classes` is started once for it.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::Value;
use task_engine_core::display::{brief, span};
use task_engine_core::json::Json;
use task_engine_core::suggest::did_you_mean;
use tokio::io::{AsyncBufRead, AsyncBufReadExt, AsyncReadExt, BufReader};
use tokio::time::timeout;

use super::child;
use super::config::Worker;
use super::log::{LogTail, for_each_line};
use super::once::end_text;
use super::protocol::{self, LineFields, WorkerLine};

/// How long a worker may take to announce its classes, and then to end.
const ANNOUNCEMENT_TIMEOUT: Duration = Duration::from_secs(30);
const END_TIMEOUT: Duration = Duration::from_secs(5);
/// The longest announcement, with its schemas.
pub(super) const BYTES_MAX: u64 = 1024 * 1024;
const CLASSES_MAX: usize = 1000;
const VERSION: u64 = 1;
/// What a worker may set of a class: what the file may set, but not how it is started.
const CLASS_OPTIONS: [&str; 15] = [
    "class",
    "timeout",
    "grace",
    "retry",
    "queue",
    "priority",
    "result_bytes",
    "log_lines",
    "secret",
    "limit",
    "rate",
    "in_order",
    "fair",
    "limits",
    "schema",
];

/// What a worker says about itself.
#[derive(Debug, Default)]
pub(crate) struct Announcement {
    pub(super) classes: BTreeMap<String, AnnouncedClass>,
    pub(super) concurrency: Option<usize>,
    /// Over a socket: how it wants to be called, and its access.
    pub(super) name: Option<String>,
    pub(super) token: Option<String>,
}

#[derive(Debug, Default)]
pub(crate) struct AnnouncedClass {
    /// The keys of `[class.NAME]` in the file.
    pub(super) options: serde_json::Map<String, Value>,
    /// The JSON Schema of its parameters.
    pub(super) schema: Option<Json>,
}

/// Reads an announcement. The error completes "its announcement …".
pub(super) fn parse(fields: &LineFields) -> Result<Announcement, String> {
    match protocol::value(fields, "protocol") {
        Some(version) if version.as_u64() == Some(VERSION) => {}
        Some(other) => {
            return Err(format!(
                "is for protocol {}, and this engine has protocol {VERSION}; use a client and an engine of the same version",
                protocol::brief(&other)
            ));
        }
        None => return Err(format!("has no \"protocol\": {VERSION}")),
    }
    let Some(Value::Array(list)) = protocol::value(fields, "classes") else {
        return Err("has no list \"classes\"".to_owned());
    };
    if list.len() > CLASSES_MAX {
        return Err(format!("has more than {CLASSES_MAX} classes"));
    }
    let mut classes = BTreeMap::new();
    for (nth, class) in list.into_iter().enumerate() {
        let (name, class) =
            announced_class(class).map_err(|why| format!("has a class {} {why}", nth + 1))?;
        if classes.contains_key(&name) {
            return Err(format!("has the class {:?} twice", brief(&name, 40)));
        }
        classes.insert(name, class);
    }
    if classes.is_empty() {
        return Err("has no class; register a task before the worker starts to serve".to_owned());
    }
    let concurrency = protocol::concurrency(fields).map_err(|why| format!("has {why}"))?;
    let text = |key: &str| match protocol::value(fields, key) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok(Some(text)),
        Some(_) => Err(format!("has a {key} that is not a text")),
    };
    Ok(Announcement { classes, concurrency, name: text("name")?, token: text("token")? })
}

/// The error completes "a class N …".
fn announced_class(class: Value) -> Result<(String, AnnouncedClass), String> {
    let Value::Object(mut options) = class else {
        return Err("that is not an object".to_owned());
    };
    let Some(Value::String(name)) = options.remove("class") else {
        return Err("without a name; its name is a text in \"class\"".to_owned());
    };
    let quoted = brief(&name, 40);
    if let Some(key) = options.keys().find(|key| !CLASS_OPTIONS.contains(&key.as_str())) {
        let hint = did_you_mean(key, CLASS_OPTIONS);
        return Err(format!("({quoted}) with an unknown option {:?}{hint}", brief(key, 40)));
    }
    let schema = match options.remove("schema") {
        None | Some(Value::Null) => None,
        Some(schema @ Value::Object(_)) => {
            let schema = Json::parse(schema.to_string());
            Some(schema.map_err(|why| format!("({quoted}) whose schema is {why}"))?)
        }
        Some(_) => return Err(format!("({quoted}) whose schema is not an object")),
    };
    Ok((name, AnnouncedClass { options, schema }))
}

/// Reads the announcement of a worker: the first line that is not empty. `None` if the
/// worker ended before; the error is a sentence about it.
pub(super) async fn read(
    from: &mut (impl AsyncBufRead + Unpin),
) -> Result<Option<Announcement>, String> {
    let mut line = Vec::new();
    while line.trim_ascii().is_empty() {
        line.clear();
        match (&mut *from).take(BYTES_MAX).read_until(b'\n', &mut line).await {
            Ok(0) | Err(_) => return Ok(None),
            Ok(_) if line.last() != Some(&b'\n') && line.len() as u64 >= BYTES_MAX => {
                return Err(format!(
                    "it announced itself by a line of more than {BYTES_MAX} bytes"
                ));
            }
            Ok(_) => {}
        }
    }
    match protocol::parse(&line) {
        Ok(WorkerLine::Announcement(announcement)) => Ok(Some(*announcement)),
        Ok(_) => {
            Err("sent another line before its announcement, {\"protocol\": 1, \"classes\": …}"
                .to_owned())
        }
        Err(malformed) => Err(malformed.why),
    }
}

/// Starts a worker, reads its announcement, and ends it.
pub(super) async fn ask(worker: &Worker) -> Result<Announcement, String> {
    let started = child::start(&worker.program, &[]);
    let program = worker.program.path.display();
    let (control, stdout, stderr, waiting) =
        started.map_err(|error| format!("{program} cannot be started: {error}"))?;
    let name = worker.name.clone();
    let logging = tokio::spawn(async move {
        let mut tail = LogTail::default();
        for_each_line(stderr, |line| {
            tracing::info!("Worker process {name}: {line}");
            tail.add(line);
        })
        .await;
        tail
    });
    let mut output = BufReader::new(stdout);
    let announced = timeout(ANNOUNCEMENT_TIMEOUT, read(&mut output)).await;
    // It has no task, so it ends at once.
    control.end_input();
    let ending = tokio::spawn(waiting.ending());
    let drained = async {
        let mut rest = Vec::new();
        let _ = output.take(BYTES_MAX).read_to_end(&mut rest).await;
    };
    let ended = if matches!(announced, Ok(Ok(Some(_)))) {
        timeout(END_TIMEOUT, async {
            drained.await;
            ending.await
        })
        .await
        .ok()
    } else {
        timeout(Duration::from_secs(1), ending).await.ok()
    };
    control.kill();
    let tail = timeout(END_TIMEOUT, logging).await.ok().and_then(Result::ok).unwrap_or_default();
    match announced {
        Ok(Ok(Some(announcement))) => {
            if ended.is_none() {
                let name = &worker.name;
                tracing::warn!(
                    "Worker {name} did not end within {} after its input was closed; it was killed",
                    span(END_TIMEOUT)
                );
            }
            Ok(announcement)
        }
        Ok(Ok(None)) => {
            let how = match ended.and_then(Result::ok) {
                Some(ended) => end_text(&ended),
                None => "it closed its standard output".to_owned(),
            };
            let last = tail.last_words();
            Err(format!("it ended before it had announced its classes ({how}){last}"))
        }
        Ok(Err(why)) => Err(why),
        Err(_) => Err(format!(
            "it did not announce its classes within {}; list them in task-engine.toml: classes = [\"NAME\"]",
            span(ANNOUNCEMENT_TIMEOUT)
        )),
    }
}
