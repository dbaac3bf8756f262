//! Random and mutated requests to every route of the real router, on both stores:
//! no panic, no status of 500 or above, no slow response.
//!
//! `FUZZ_SECONDS=600 cargo test -p task-engine-web --test fuzz` runs longer
//! (10 s otherwise, on each store); `FUZZ_SEED` repeats a run.

use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::http::{Method, Request};
use fastrand::Rng;
use task_engine::postgres::PgStore;
use task_engine::sqlite::SqliteStore;
use task_engine_store::contract::Store;
use task_engine_test_harness::TestServer;
use task_engine_web::{Access, Dashboard, Role, Route};
use tower::ServiceExt as _;

/// Generous: the machine may run other tests.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(40);

/// Valid requests, mutated and sent to every route.
const BODIES: [&str; 18] = [
    "",
    "{}",
    "[]",
    r#"{"class":"a","parameters":{"n":1,"s":"é","l":[1,{"x":null}]},"queue":"q","priority":3}"#,
    r#"{"class":"a","after":"10m","key":"k","scope":"active","on_conflict":"replace"}"#,
    r#"{"class":"a","scheduled_at":"2126-01-01T00:00:00Z","correlation_id":"c","retry":{"maximum":3,"factor":2.5}}"#,
    r#"{"tasks":[{"class":"a"},{"class":"b","parameters":{"p":"[secret]"}}]}"#,
    r#"[{"class":"a","traceparent":"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"}]"#,
    r#"{"ids":[1,2,"3"],"reason":"why","dry_run":true}"#,
    r#"{"filter":"status=failed,waiting class=a created>now-2h params.n=1 error~x","dry_run":false}"#,
    r#"{"parameters":{"n":2},"queue":"r","priority":-1,"after":"5s","reason":"x"}"#,
    r#"{"reason":"because"}"#,
    r#"{"name":"s","rule":"*/5 * * * *","class":"a","parameters":{},"time_zone":"Europe/Paris"}"#,
    r#"{"rule":"every 15m","class":"a","missed":"all:3","overlap":"skip","jitter":"5s"}"#,
    r#"{"name":"t","role":"viewer","expires_in":"90 days"}"#,
    "ids=1&ids=2&reason=x&back=/tasks&operation=retry&filter=status%3Dfailed",
    "class=a&parameters=%7B%22n%22%3A1%7D&queue=q&priority=1&in=10m&once=abc&then=created",
    "name=s&rule=0+3+*+*+*&time_zone=UTC&class=a&parameters=%7B%7D&missed=last&overlap=allow&do=preview",
];

const NAMES: [&str; 30] = [
    "filter",
    "before",
    "after",
    "limit",
    "attempt",
    "actor",
    "action",
    "task",
    "since",
    "until",
    "rule",
    "zone",
    "count",
    "depth",
    "reason",
    "name",
    "ids",
    "operation",
    "done",
    "to",
    "text",
    "scheduled_at",
    "queue",
    "class",
    "parameters",
    "id",
    "over",
    "q",
    "back",
    "instance",
];

const VALUES: [&str; 34] = [
    "",
    "0",
    "1",
    "-1",
    "9223372036854775807",
    "9223372036854775808",
    "1e400",
    "NaN",
    "2.17",
    "status=failed",
    "class=a",
    "params.n=1",
    "context.x~y",
    "created>2026-12-24",
    "id=1,2,3",
    "error~\"429\"",
    "(",
    "\"",
    "\\",
    "%",
    "%00",
    "\u{0}",
    "\u{202e}",
    "\u{feff}",
    "é😀",
    "' OR 1=1 --",
    "<script>",
    "../../etc/passwd",
    "2h",
    "2026-12-24T18:00:00Z",
    "usual",
    "day",
    "[secret]",
    "*/5 * * * *",
];

const TOKENS: [&str; 24] = [
    "{",
    "}",
    "[",
    "]",
    ":",
    ",",
    "\"",
    "\\",
    "\\u0000",
    "\\ud800",
    "null",
    "true",
    "-0",
    "1e999999",
    "1E+131071",
    "0.1e-9",
    "\u{0}",
    "\u{202e}",
    "\"class\"",
    "\"parameters\"",
    "\"[secret]\"",
    "\"\"",
    "999999999999999999999999",
    "\"a\":",
];

const PIECES: [&str; 18] = [
    "1",
    "2",
    "3",
    "999999",
    "0",
    "-1",
    "9223372036854775807",
    "a",
    "default",
    "s",
    "nothing",
    "%00",
    "%2F",
    "%E2%80%AE",
    "%ff",
    "..",
    "parameters.json",
    "result-1.json",
];

fn pick<'a>(random: &mut Rng, from: &[&'a str]) -> &'a str {
    from[random.usize(..from.len())]
}

fn path(random: &mut Rng, route: &Route) -> String {
    let piece = |piece: &str| match piece {
        "{id}" if random.bool() => random.u8(1..9).to_string(),
        varies if varies.starts_with('{') => pick(random, &PIECES).to_owned(),
        fixed => fixed.to_owned(),
    };
    route.path.split('/').map(piece).collect::<Vec<_>>().join("/")
}

fn query(random: &mut Rng) -> String {
    let mut query = form_urlencoded::Serializer::new(String::new());
    for _ in 0..random.usize(..4) {
        let mut value = pick(random, &VALUES).to_owned();
        if random.u8(..4) == 0 {
            value = mutated(random, &value);
        }
        query.append_pair(pick(random, &NAMES), &value);
    }
    query.finish()
}

/// Random insertions, deletions, duplications and replacements.
fn mutated(random: &mut Rng, text: &str) -> String {
    let mut chars: Vec<char> = text.chars().collect();
    for _ in 0..random.usize(..4) {
        let at = random.usize(..=chars.len());
        let end = (at + random.usize(..8)).min(chars.len());
        match random.u8(..4) {
            0 => drop(chars.splice(at..at, pick(random, &TOKENS).chars())),
            1 => drop(chars.drain(at..end)),
            2 => drop(chars.splice(at..at, chars[at..end].to_vec())),
            _ => drop(chars.splice(at..end, pick(random, &VALUES).chars())),
        }
    }
    chars.into_iter().collect()
}

fn body(random: &mut Rng) -> Vec<u8> {
    match random.u8(..10) {
        0 => (0..random.usize(..200)).map(|_| random.u8(..)).collect(),
        1 => "[".repeat(random.usize(..5_000)).into_bytes(),
        2 => {
            (0..random.usize(..40)).map(|_| pick(random, &TOKENS)).collect::<String>().into_bytes()
        }
        3 => pick(random, &BODIES).as_bytes().to_vec(),
        _ => {
            let seed = pick(random, &BODIES);
            mutated(random, seed).into_bytes()
        }
    }
}

fn request(random: &mut Rng, route: &Route) -> Request<Body> {
    let query = query(random);
    let uri = format!("{}?{query}", path(random, route));
    let method = if random.u8(..20) == 0 { "OPTIONS" } else { route.method };
    let mut request = Request::builder().method(Method::from_bytes(method.as_bytes()).unwrap());
    request = request.uri(uri).header("host", "localhost");
    request = request.header("sec-fetch-site", "same-origin");
    let kinds = ["application/json", "application/x-www-form-urlencoded", "text/plain", "a/b;;c"];
    // Mostly with the content type of the route.
    let is_api = route.path.starts_with("/api/");
    let kind = if random.u8(..8) == 0 { pick(random, &kinds) } else { kinds[usize::from(!is_api)] };
    request = request.header("content-type", kind);
    if random.u8(..6) == 0 {
        request = request.header("idempotency-key", pick(random, &["k", "l", "", "\"x\""]));
    }
    if random.u8(..10) == 0 {
        request =
            request.header("cookie", pick(random, &["task_engine_session=00.00", "a", "=;="]));
    }
    let body = if route.method == "GET" { Vec::new() } else { body(random) };
    request.body(Body::from(body)).unwrap()
}

async fn fuzz(store: Arc<dyn Store>) {
    store.migrate().await.unwrap();
    let router = Dashboard::new(store, Access::open_to(Role::Admin)).router();
    let seconds = std::env::var("FUZZ_SECONDS").ok().and_then(|text| text.parse().ok());
    let until = Instant::now() + Duration::from_secs(seconds.unwrap_or(10));
    let seed = std::env::var("FUZZ_SEED").ok().and_then(|text| text.parse().ok());
    let seed = seed.unwrap_or_else(|| fastrand::u64(..));
    let mut random = Rng::with_seed(seed);
    let routes = Dashboard::routes();
    let mut sent = 0_u64;
    while Instant::now() < until {
        let route = &routes[random.usize(..routes.len())];
        one(&router, &mut random, route, seed).await;
        sent += 1;
    }
    println!("{sent} requests with FUZZ_SEED={seed}");
    assert!(sent > 20, "only {sent} requests were answered");
}

async fn one(router: &Router, random: &mut Rng, route: &Route, seed: u64) {
    let request = request(random, route);
    let what = format!("FUZZ_SEED={seed}: {} {}", request.method(), request.uri());
    let endless = route.path.ends_with("/events");
    let answer = async {
        let response = router.clone().oneshot(request).await.expect("a router cannot fail");
        let status = response.status();
        let body = if endless {
            Vec::new()
        } else {
            to_bytes(response.into_body(), 64 << 20).await.expect("a body").to_vec()
        };
        (status, body)
    };
    let answer = tokio::time::timeout(ANSWER_TIMEOUT, answer).await;
    let (status, body) = answer.unwrap_or_else(|_| panic!("{what}: no answer"));
    let text = String::from_utf8_lossy(&body);
    assert!(status.as_u16() < 500, "{what}: {status} {text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_never_break_sqlite_dashboard() {
    let folder = tempfile::tempdir().unwrap();
    fuzz(Arc::new(SqliteStore::open(folder.path().join("tasks.db")).unwrap())).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_never_break_postgres_dashboard() {
    let url = TestServer::shared().create_database().await;
    fuzz(Arc::new(PgStore::connect(&url).await.unwrap())).await;
}
