//! Login, sessions and tokens.

use std::time::Duration;

use task_engine_conformance::waiting::wait_for;
use task_engine_store::token::{NewToken, TokenSecret};
use task_engine_web::{Access, Role};

use crate::client::{Client, Response, sqlite};

const PASSWORD: &str = "correct horse battery";

fn guarded() -> Access {
    Access::closed().password(PASSWORD).expect("long enough")
}

async fn log_in(client: &Client, secret: &str) -> Response {
    let form = client
        .header("content-type", "application/x-www-form-urlencoded")
        .header("origin", "http://127.0.0.1:8642");
    form.ask("POST", "/login", Some(&format!("secret={}&to=/", secret.replace(' ', "+")))).await
}

/// The name and value of the cookie, and its attributes.
fn cookie(response: &Response) -> (String, Vec<String>) {
    let set = response.header("set-cookie");
    let mut parts = set.split("; ").map(str::to_owned);
    (parts.next().expect("a cookie"), parts.collect())
}

#[tokio::test]
async fn password_starts_a_session() {
    let tables = sqlite().await;
    let client = tables.with(guarded());
    assert_eq!(client.get("/").await.header("location"), "/login?to=%2F");
    for wrong in ["", "wrong", "correct horse batterz", "te_", &format!("te_{}", "0".repeat(64))] {
        let response = log_in(&client, wrong).await;
        assert_eq!(response.status, 401, "{wrong:?}");
        assert_eq!(response.header("set-cookie"), "");
    }
    let response = log_in(&client, PASSWORD).await;
    assert_eq!((response.status.as_u16(), response.header("location")), (303, "/"));
    let (session, mut attributes) = cookie(&response);
    attributes.sort();
    assert_eq!(attributes, ["HttpOnly", "Max-Age=43200", "Path=/", "SameSite=Strict"]);
    let inside = client.header("cookie", &session);
    assert_eq!(inside.get("/").await.status, 200);
    inside.get("/api/v1/audit").await.ok();
    let forged = client.header("cookie", &format!("{session}0"));
    forged.get("/api/v1/audit").await.problem(401);

    let named = guarded().public_url("https://tasks.example.com").unwrap();
    let (_, attributes) = cookie(&log_in(&tables.with(named), PASSWORD).await);
    assert!(attributes.contains(&"Secure".to_owned()), "{attributes:?}");
    let form = client.header("origin", "http://evil.test");
    let form = form.header("content-type", "application/x-www-form-urlencoded");
    let response = form.ask("POST", "/login", Some("secret=x")).await;
    assert_eq!(response.status, 403, "another site cannot log in");
}

#[tokio::test]
async fn guessing_is_limited_and_audited() {
    let tables = sqlite().await;
    let client = tables.with(guarded());
    let mut response = Vec::new();
    for n in 0..20 {
        response.push(log_in(&client, &format!("guess {n}")).await.status.as_u16());
    }
    assert_eq!(response[..10], [401; 10]);
    assert_eq!(response[10..], [429; 10]);
    assert_eq!(log_in(&client, PASSWORD).await.status, 429, "not even by rng");
    let audit =
        tables.store.audit_page(&task_engine_store::audit::AuditFilter::newest(100)).await.unwrap();
    let noted: Vec<_> = audit.iter().filter(|entry| entry.action == "login").collect();
    assert_eq!(noted.len(), 2, "started and refused, once: {noted:?}");
    let refused = log_in(&client, "guess 20").await;
    assert_eq!((refused.status.as_u16(), refused.header("retry-after")), (429, "5"));
}

#[tokio::test]
async fn valid_tokens_are_not_limited() {
    let tables = sqlite().await;
    let client = tables.with(guarded());
    let token = tables.token("ann", Role::Viewer).await;
    let wrong = client.token(&format!("te_{}", "0".repeat(64)));
    for _ in 0..10 {
        wrong.get("/api/v1/tasks").await.problem(401);
    }
    let refused = wrong.get("/api/v1/tasks").await;
    assert_eq!(refused.header("retry-after"), "5");
    refused.problem(429);
    client.token(&token).get("/api/v1/tasks").await.ok();
    assert_eq!(log_in(&client, PASSWORD).await.status, 303, "a login is something else");
    // A token does not allow more guesses.
    for n in 0..10 {
        assert_eq!(log_in(&client, &format!("guess {n}")).await.status, 401);
        assert_eq!(log_in(&client, &token).await.status, 303);
    }
    assert_eq!(log_in(&client, PASSWORD).await.status, 429);
    assert_eq!(log_in(&client, &token).await.status, 303);
}

#[tokio::test]
async fn large_login_bodies_are_refused() {
    let tables = sqlite().await;
    let client = tables.with(guarded());
    assert_eq!(log_in(&client, &"x".repeat(50_000)).await.status, 401);
    assert_eq!(log_in(&client, &"x".repeat(100_000)).await.status, 413);
}

#[tokio::test]
async fn login_returns_to_the_page() {
    let tables = sqlite().await;
    let client = tables.with(guarded()).header("sec-fetch-site", "same-origin");
    let response = client.get("/tasks?filter=id%3D1").await;
    assert_eq!(response.header("location"), "/login?to=%2Ftasks%3Ffilter%3Did%253D1");
    let response = client.ask("POST", "/operations/retry", Some("ids=1")).await;
    assert_eq!(response.header("location"), "/login?to=%2F");
}

#[tokio::test]
async fn session_ends_with_its_token() {
    let tables = sqlite().await;
    let client = tables.with(Access::closed());
    let token = tables.token("ann", Role::Operator).await;
    let (session, _) = cookie(&log_in(&client, &token).await);
    let inside = client.header("cookie", &session);
    inside.get("/api/v1/tasks").await.ok();
    inside.get("/api/v1/audit").await.problem(403);
    assert!(tables.store.revoke_token("ann").await.unwrap());
    inside.get("/api/v1/tasks").await.problem(401);
    client.token(&token).get("/api/v1/tasks").await.problem(401);
    assert_eq!(log_in(&client, &token).await.status, 401);
}

#[tokio::test]
async fn expired_token_is_refused() {
    let tables = sqlite().await;
    let client = tables.with(Access::closed());
    let secret = TokenSecret::generate().unwrap();
    let short = Some(Duration::from_millis(300));
    let token = NewToken::new("short", Role::Admin, secret.hash(), short).unwrap();
    tables.store.add_token(&token).await.unwrap();
    let holder = client.token(secret.text());
    wait_for("it expires", async || {
        (holder.get("/api/v1/tasks").await.status == 401).then_some(())
    })
    .await;
    assert_eq!(log_in(&client, secret.text()).await.status, 401);
    let tokens = tables.store.tokens().await.unwrap();
    assert!(tokens[0].expires_at.is_some() && tokens[0].revoked_at.is_none());
}

#[tokio::test]
async fn session_is_refused_cross_site() {
    let tables = sqlite().await;
    let client = tables.with(guarded());
    let (session, _) = cookie(&log_in(&client, PASSWORD).await);
    let inside = client.header("cookie", &session);
    let task = Some(r#"{"class":"a"}"#);
    // Without an origin, with a foreign one, and as a form.
    inside.ask("POST", "/api/v1/tasks", task).await.problem(403);
    let evil = inside.header("origin", "http://evil.test");
    evil.ask("POST", "/api/v1/tasks", task).await.problem(403);
    let plain = inside.header("content-type", "text/plain");
    plain.ask("POST", "/api/v1/tasks", task).await.problem(403);
    let own = inside.header("origin", "http://127.0.0.1:8642");
    assert_eq!(own.ask("POST", "/api/v1/tasks", task).await.status, 201);
}

#[tokio::test]
async fn proxy_headers_are_ignored() {
    let tables = sqlite().await;
    let client = tables.with(guarded());
    for n in 0..20 {
        // Each claims another address.
        let forged = client.header("x-forwarded-for", &format!("10.0.0.{n}"));
        let forged = forged.header("forwarded", "for=127.0.0.1;host=localhost;proto=https");
        let response = log_in(&forged.header("x-real-ip", "127.0.0.1"), "a guess").await;
        assert_eq!(response.status, if n < 10 { 401 } else { 429 });
    }
    let named = client.header("x-forwarded-host", "localhost").header("host", "evil.test");
    assert_eq!(named.get("/livez").await.status, 421);
}

#[tokio::test]
async fn logout_ends_session_everywhere() {
    let tables = sqlite().await;
    let token = tables.token("ann", Role::Viewer).await;
    for secret in [PASSWORD, &token] {
        let (one, other) = (tables.with(guarded()), tables.with(guarded()));
        let (session, _) = cookie(&log_in(&one, secret).await);
        let (another, _) = cookie(&log_in(&one, secret).await);
        let page = |client: &Client, cookie: &str| client.header("cookie", cookie);
        assert_eq!(page(&other, &session).get("/").await.status, 200, "known to both");
        let leaving = page(&one, &session).header("origin", "http://127.0.0.1:8642");
        let response = leaving.ask("POST", "/logout", Some("")).await;
        assert!(response.header("set-cookie").contains("Max-Age=0"), "{response:?}");
        for server in [&one, &other] {
            page(server, &session).get("/api/v1/tasks").await.problem(401);
            assert_eq!(page(server, &another).get("/").await.status, 200, "another session");
        }
    }
}

#[tokio::test]
async fn only_bearer_authorization_is_taken() {
    let tables = sqlite().await;
    let client = tables.open();
    for wrong in ["Basic dXNlcjpwYXNz", "te_0000", "Digest x", ""] {
        let asked = client.header("authorization", wrong);
        asked.get("/api/v1/tasks").await.problem(401);
        asked.post("/api/v1/tasks", &serde_json::json!({"class": "a"})).await.problem(401);
    }
    let token = tables.token("ann", Role::Viewer).await;
    let twice = client.token(&token).header("authorization", "Basic x");
    twice.get("/api/v1/tasks").await.problem(401);
    client.token(&token).get("/api/v1/tasks").await.ok();
}
