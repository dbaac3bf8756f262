//! Executions reach a collector as spans under the span of their creator.

use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use task_engine::hooks::Next;
use task_engine::sqlite::SqliteStore;
use task_engine::{Context, Failure, Hook, Json, RetryRule, Task, TaskEngine, TaskOptions};
use tracing::Instrument as _;
use tracing_subscriber::prelude::*;

/// A span as it came over the wire.
#[derive(Debug, Clone, Default, PartialEq)]
struct Span {
    trace_id: Vec<u8>,
    span_id: Vec<u8>,
    parent_id: Vec<u8>,
    name: String,
    kind: u64,
    /// The trace and the span of each.
    links: Vec<(Vec<u8>, Vec<u8>)>,
    attributes: HashMap<String, String>,
    /// 1 is fine, 2 an error.
    status: u64,
}

/// A collector: as much of HTTP and protobuf as it takes to listen.
#[derive(Clone, Default)]
struct Collector(Arc<Mutex<Vec<Span>>>);

impl Collector {
    fn listen(&self) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        let collector = self.clone();
        std::thread::spawn(move || {
            for connection in listener.incoming() {
                let (connection, collector) = (connection.unwrap(), collector.clone());
                std::thread::spawn(move || collector.serve(connection));
            }
        });
        address
    }

    fn serve(&self, mut connection: TcpStream) {
        while let Some((head, body)) = request(&mut connection) {
            assert!(head.starts_with("POST /v1/traces HTTP/1.1"), "{head}");
            assert!(head.contains("application/x-protobuf"), "{head}");
            self.0.lock().unwrap().extend(spans(&body));
            connection.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").unwrap();
        }
    }

    fn spans(&self) -> Vec<Span> {
        self.0.lock().unwrap().clone()
    }
}

fn request(connection: &mut TcpStream) -> Option<(String, Vec<u8>)> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        connection.read_exact(&mut byte).ok()?;
        head.push(byte[0]);
    }
    let head = String::from_utf8(head).unwrap();
    let length = head.to_lowercase();
    let (_, length) = length.split_once("content-length: ").expect("a length");
    let length = length.split("\r\n").next().unwrap().parse().unwrap();
    let mut body = vec![0; length];
    connection.read_exact(&mut body).ok()?;
    Some((head, body))
}

/// A field of a protobuf message.
enum Field<'a> {
    Number(u64),
    Bytes(&'a [u8]),
}

impl<'a> Field<'a> {
    fn bytes(&self) -> &'a [u8] {
        match self {
            Self::Bytes(bytes) => bytes,
            Self::Number(number) => panic!("{number} instead of bytes"),
        }
    }

    fn number(&self) -> u64 {
        match self {
            Self::Number(number) => *number,
            Self::Bytes(bytes) => panic!("{bytes:?} instead of a number"),
        }
    }

    fn text(&self) -> String {
        String::from_utf8(self.bytes().to_vec()).unwrap()
    }
}

fn fields(mut message: &[u8]) -> Vec<(u64, Field<'_>)> {
    fn varint(message: &mut &[u8]) -> u64 {
        let mut value = 0;
        for shift in (0..).step_by(7) {
            let byte = message[0];
            *message = &message[1..];
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                break;
            }
        }
        value
    }
    let mut fields = Vec::new();
    while !message.is_empty() {
        let tag = varint(&mut message);
        let mut take = |length: usize| {
            let (taken, rest) = message.split_at(length);
            message = rest;
            taken
        };
        let field = match tag & 7 {
            0 => Field::Number(varint(&mut message)),
            1 => Field::Bytes(take(8)),
            2 => {
                let length = varint(&mut message);
                let (taken, rest) = message.split_at(usize::try_from(length).unwrap());
                message = rest;
                Field::Bytes(taken)
            }
            5 => Field::Bytes(take(4)),
            other => panic!("no protobuf: wire type {other}"),
        };
        fields.push((tag >> 3, field));
    }
    fields
}

/// ExportTraceServiceRequest → resource_spans → scope_spans → spans.
fn spans(request: &[u8]) -> Vec<Span> {
    let inside = |messages: Vec<Vec<u8>>, number| -> Vec<Vec<u8>> {
        let fields = messages.iter().flat_map(|message| fields(message));
        fields.filter(|(n, _)| *n == number).map(|(_, f)| f.bytes().to_vec()).collect()
    };
    let resources = inside(vec![request.to_vec()], 1);
    let scopes = inside(resources, 2);
    inside(scopes, 2).iter().map(|message| span(message)).collect()
}

fn span(message: &[u8]) -> Span {
    let mut span = Span::default();
    for (number, field) in fields(message) {
        match number {
            1 => span.trace_id = field.bytes().to_vec(),
            2 => span.span_id = field.bytes().to_vec(),
            4 => span.parent_id = field.bytes().to_vec(),
            5 => span.name = field.text(),
            6 => span.kind = field.number(),
            9 => {
                let attribute = fields(field.bytes());
                let key = attribute[0].1.text();
                let value = match fields(attribute[1].1.bytes()).remove(0) {
                    (1, text) => text.text(),
                    (3, number) => number.number().to_string(),
                    _ => return span,
                };
                span.attributes.insert(key, value);
            }
            13 => {
                let link = fields(field.bytes());
                span.links.push((link[0].1.bytes().to_vec(), link[1].1.bytes().to_vec()));
            }
            15 => {
                let code = fields(field.bytes()).into_iter().find(|(number, _)| *number == 3);
                span.status = code.map_or(0, |(_, code)| code.number());
            }
            _ => {}
        }
    }
    span
}

#[derive(serde::Serialize, serde::Deserialize)]
struct Parent;

impl Task for Parent {
    const CLASS: &'static str = "parent";

    fn options() -> TaskOptions {
        TaskOptions::default().retry(RetryRule::every(Duration::from_millis(1), 3))
    }
}

#[derive(serde::Serialize, serde::Deserialize)]
struct Child;

impl Task for Child {
    const CLASS: &'static str = "child";
}

struct Step;

impl Hook<()> for Step {
    async fn around(&self, _: &Context<()>, next: Next<'_, ()>) -> Result<Json, Failure> {
        next.run().instrument(tracing::info_span!("step")).await
    }
}

/// Fails once, then runs a step and creates a child.
async fn parent(_: Parent, cx: Context<()>) -> Result<(), Failure> {
    if cx.attempt() == 1 {
        return Err(Failure::from("the first attempt fails"));
    }
    cx.step("count", || async { Ok::<_, Failure>(1) }).await?;
    cx.create(Child).await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn execution_spans_have_creator_parent() {
    let collector = Collector::default();
    let (layer, export) = task_engine::otlp::export(Some(&collector.listen()), "shop").unwrap();
    tracing_subscriber::registry().with(layer).init();
    let store = SqliteStore::open_in_memory().unwrap();
    store.migrate().await.unwrap();
    let client = TaskEngine::new(store.clone());
    let engine = TaskEngine::new(store.clone())
        .engine(())
        .instance("test")
        .hook(Step)
        .handle(parent)
        .handle_blocking(|_: Child, _: Context<()>| {
            tracing::info_span!("inside a thread").in_scope(|| {});
            Ok::<_, Failure>(())
        });
    // No span here: nothing to carry.
    let untraced = client.create(Child).await.unwrap();
    assert_eq!(store.task(untraced).await.unwrap().unwrap().context.as_str(), "{}");
    let id = async { client.create(Parent).await.unwrap() };
    let id = id.instrument(tracing::info_span!("request")).await;
    let stop = engine.stop_handle();
    let engine = tokio::spawn(engine.run_until(std::future::pending()));
    // What is created in a trace is the flow of that trace.
    let correlation_id = store.task(id).await.unwrap().unwrap().correlation_id;
    let page = task_engine::core::flow::FlowPage {
        correlation_id: correlation_id.clone(),
        after: None,
        limit: 10,
    };
    let begun = Instant::now();
    loop {
        let flow = store.flow(&page).await.unwrap();
        let done = |task: &task_engine::core::flow::FlowTask| {
            task.row.status == task_engine::TaskStatus::Stopped
        };
        if flow.len() == 2 && flow.iter().all(done) {
            break;
        }
        assert!(begun.elapsed() < Duration::from_secs(30), "{flow:?}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    stop.stop();
    engine.await.unwrap().unwrap();
    tokio::task::spawn_blocking(|| export.finish()).await.unwrap();

    let spans = collector.spans();
    let of = |name: &str, class: &str, attempt: &str| {
        let mut found = spans.iter().filter(|span| {
            let is = |key: &str, value: &str| {
                value.is_empty() || span.attributes.get(key).map(String::as_str) == Some(value)
            };
            span.name == name && is("task.class", class) && is("task.attempt", attempt)
        });
        let span = found.next().unwrap_or_else(|| panic!("{name} {attempt} in {spans:#?}")).clone();
        (span, found.count())
    };
    let (request, _) = of("request", "", "");
    let (first, others) = of("execute parent", "parent", "1");
    assert_eq!(others, 0, "each execution once");
    assert_eq!((&first.trace_id, &first.parent_id), (&request.trace_id, &request.span_id));
    assert_eq!((first.status, first.kind), (2, 5), "an error, of a consumer");
    let trace_id: String = request.trace_id.iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(correlation_id, trace_id);
    assert_eq!(first.attributes["correlation_id"], trace_id);
    assert_eq!(first.attributes["task.id"], id.to_string());
    assert_eq!(first.links, []);

    let (retry, _) = of("execute parent", "parent", "2");
    assert_ne!(retry.trace_id, request.trace_id, "a retry is a trace of its own");
    assert_eq!(retry.parent_id, Vec::<u8>::new());
    assert_eq!(retry.links, [(request.trace_id.clone(), request.span_id.clone())]);
    assert_eq!(retry.status, 1);

    // The child was created inside of the hook's span, inside of the execution's.
    let steps = || spans.iter().filter(|span| span.name == "step");
    let step = steps().find(|step| step.parent_id == retry.span_id).expect("the hook's span");
    let inside = |name: &str| {
        let found = spans.iter().find(|span| span.name == name && span.parent_id == step.span_id);
        found.unwrap_or_else(|| panic!("{name} in {spans:#?}"))
    };
    let child = inside("execute child");
    assert_eq!(child.trace_id, retry.trace_id);
    assert_eq!(inside("step count").attributes["step.name"], "count");
    assert_eq!(child.attributes["correlation_id"], trace_id, "of its flow, not of its own trace");
    let thread = spans.iter().filter(|span| span.name == "inside a thread");
    let parents: Vec<_> = thread.map(|span| &span.parent_id).collect();
    assert_eq!(parents.len(), 2);
    assert!(parents.iter().all(|parent| steps().any(|step| step.span_id == **parent)));
    let untraced = spans.iter().find(|span| {
        span.name == "execute child" && span.attributes["task.id"] == untraced.to_string()
    });
    assert_eq!(untraced.unwrap().parent_id, Vec::<u8>::new());
}

#[test]
fn invalid_address_is_refused() {
    let wrong = task_engine::otlp::export::<tracing_subscriber::Registry>(Some("localhost"), "a");
    let error = wrong.map(|_| ()).unwrap_err().to_string();
    assert!(error.contains("looks like http://localhost:4318, not like \"localhost\""), "{error}");
}
