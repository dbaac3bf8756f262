//! What every request goes through: is it meant for this server, does it come
//! from one of its own pages, and who is it from.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use axum::body::Body;
use axum::extract::{ConnectInfo, FromRequestParts, Request, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Uri, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Redirect, Response};
use task_engine_store::token::{Role, Secret};

use crate::access::Actor;
use crate::app::{App, encoded};
use crate::layout;
use crate::problem::Problem;
use crate::routes::BODY_MAX_BYTES;
use crate::session::{self, Session};
use crate::visible;

pub(crate) const COOKIE: &str = "task_engine_session";

/// Nothing from elsewhere, nothing inline, in nobody's frame; and no text
/// becomes part of a page but through the one function that checks it.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; \
    connect-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'; \
    require-trusted-types-for 'script'; trusted-types task-engine";

/// What is only read is there by then, or not at all.
const ANSWER_WITHIN: Duration = Duration::from_secs(30);

/// Who is asking, if that is known.
#[derive(Debug, Clone)]
struct Known(Option<Actor>);

pub(crate) async fn guard(State(app): State<App>, request: Request, next: Next) -> Response {
    let (mut parts, body) = request.into_parts();
    let path = parts.uri.path().to_owned();
    // Whoever has logged in cannot be sent back to what was no page.
    let asked = if parts.method.is_safe() { parts.uri.path_and_query() } else { None };
    let asked = asked.map_or_else(|| "/".to_owned(), ToString::to_string);
    let shown = Shown::of(&parts.headers);
    let reads = parts.method.is_safe();
    let answer = async {
        match admit(&app, &mut parts).await {
            Ok(()) => next.run(Request::from_parts(parts, body)).await,
            Err(problem) => problem.into_response(),
        }
    };
    // A change goes on by itself, and is waited for.
    let mut response = if reads { within(ANSWER_WITHIN, answer).await } else { answer.await };
    if !is_for_programs(&path)
        && let Some(problem) = response.extensions_mut().remove::<Problem>()
    {
        let later = response.headers_mut().remove(header::RETRY_AFTER);
        response = as_page(&app, &problem, &asked, shown);
        if let Some(later) = later {
            response.headers_mut().insert(header::RETRY_AFTER, later);
        }
    }
    response = with_visible_text(response).await;
    if response.status() == StatusCode::PAYLOAD_TOO_LARGE {
        // What is left of the body is not read.
        response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
    let headers = response.headers_mut();
    for (name, value) in [
        ("content-security-policy", POLICY),
        ("x-content-type-options", "nosniff"),
        // Not `no-referrer`: with it, forms say `Origin: null` even to their own
        // server, and over plain HTTP browsers say nothing else.
        ("referrer-policy", "same-origin"),
        ("cross-origin-opener-policy", "same-origin"),
        ("cross-origin-resource-policy", "same-origin"),
    ] {
        headers.insert(HeaderName::from_static(name), HeaderValue::from_static(value));
    }
    if !headers.contains_key(header::CACHE_CONTROL) {
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    }
    response
}

/// Pages are made as a whole, so this copies what is in memory anyway.
async fn with_visible_text(response: Response) -> Response {
    let kind = response.headers().get(header::CONTENT_TYPE);
    if !kind.is_some_and(|kind| kind.as_bytes().starts_with(b"text/html")) {
        return response;
    }
    let (parts, body) = response.into_parts();
    let Ok(bytes) = axum::body::to_bytes(body, usize::MAX).await else {
        return Problem::unavailable("The page could not be made. Try again.").into_response();
    };
    let shown = visible::page(&String::from_utf8_lossy(&bytes)).into_owned();
    Response::from_parts(parts, Body::from(shown))
}

/// A database that hangs takes nobody with it.
async fn within(time: Duration, answer: impl Future<Output = Response>) -> Response {
    tokio::time::timeout(time, answer).await.unwrap_or_else(|_| {
        tracing::warn!("a page was given up: the database does not answer");
        Problem::unavailable("The database does not answer. Try again in a moment.").into_response()
    })
}

/// What is not shown to people: its problems are JSON.
fn is_for_programs(path: &str) -> bool {
    path.starts_with("/api/") || matches!(path, "/metrics" | "/livez" | "/readyz" | "/events")
}

fn as_page(app: &App, problem: &Problem, asked: &str, shown: Shown) -> Response {
    if problem.status == axum::http::StatusCode::UNAUTHORIZED && app.access.authenticate.is_none() {
        let to = app.path(&format!("/login?to={}", encoded(asked)));
        return Redirect::to(&to).into_response();
    }
    (problem.status, layout::problem(app, problem, shown)).into_response()
}

async fn admit(app: &App, parts: &mut Parts) -> Result<(), Problem> {
    check_host(app, &parts.uri, &parts.headers)?;
    check_length(&parts.headers)?;
    let known = identify(app, parts).await?;
    if !parts.method.is_safe() {
        check_origin(&parts.method, &parts.uri, &parts.headers)?;
    }
    parts.extensions.insert(Known(known));
    Ok(())
}

/// A request names one host, and it is this one.
fn check_host(app: &App, uri: &Uri, headers: &HeaderMap) -> Result<(), Problem> {
    let host = one_host(uri, headers)?;
    if app.access.knows_host(host) {
        return Ok(());
    }
    Err(Problem::misdirected(
        "This server is not known by the name in the request. If it should be, start it with --web-url.",
    ))
}

/// Of two names, a proxy may have believed the other one.
fn one_host<'a>(uri: &'a Uri, headers: &'a HeaderMap) -> Result<&'a str, Problem> {
    let mut all = headers.get_all(header::HOST).iter();
    let named = all.next().map(|host| host.to_str().unwrap_or_default());
    let target = uri.authority().map(|authority| authority.as_str());
    match (named, target) {
        _ if all.next().is_some() => {
            Err(Problem::bad("The request has more than one Host header. Send one."))
        }
        (Some(named), Some(target)) if !named.eq_ignore_ascii_case(target) => Err(Problem::bad(
            "The request line names another host than the Host header. Send the same in both.",
        )),
        (named, target) => Ok(named.or(target).unwrap_or_default()),
    }
}

/// What is too large is refused before it is sent.
fn check_length(headers: &HeaderMap) -> Result<(), Problem> {
    let length = text(headers, &header::CONTENT_LENGTH).map(str::parse::<u64>);
    match length {
        Some(Ok(length)) if length <= BODY_MAX_BYTES as u64 => Ok(()),
        None => Ok(()),
        Some(_) => Err(Problem::too_large()),
    }
}

/// What changes something comes from a page of this server, or from a program
/// that no page of another one can be: one with a token, or with a body that a
/// form cannot have.
fn check_origin(method: &Method, uri: &Uri, headers: &HeaderMap) -> Result<(), Problem> {
    if bearer(headers).is_some() {
        return Ok(());
    }
    let site = headers.get("sec-fetch-site").map(HeaderValue::as_bytes);
    let origin = text(headers, &header::ORIGIN);
    let host = one_host(uri, headers)?;
    let same_origin = |origin: &str| origin.split_once("://").is_some_and(|(_, name)| name == host);
    let is_json = text(headers, &header::CONTENT_TYPE).is_some_and(|kind| {
        kind.split(';').next().unwrap_or_default().trim().eq_ignore_ascii_case("application/json")
    });
    let fits = match (site, origin) {
        (Some(site), _) => site == b"same-origin",
        (None, Some(origin)) => same_origin(origin),
        (None, None) => {
            headers.get(header::COOKIE).is_none() && (is_json || method == Method::DELETE)
        }
    };
    if fits {
        return Ok(());
    }
    Err(Problem::forbidden(
        "This request changes something and does not come from a page of this dashboard. Programs send a token (Authorization: Bearer …) or, where none is needed, a body of type application/json.",
    ))
}

/// The token if there is one, then the session, then what anybody may do.
async fn identify(app: &App, parts: &Parts) -> Result<Option<Actor>, Problem> {
    if let Some(authenticate) = &app.access.authenticate {
        return Ok(authenticate(parts));
    }
    let from = address(parts);
    if let Some(token) = bearer(&parts.headers) {
        // One that is right is never refused: nobody guesses a token, and who
        // sends wrong ones may share an address with those who do not.
        if let Some(actor) = by_token(app, token).await? {
            return Ok(Some(actor));
        }
        if app.wrong_tokens.too_many(from) {
            return Err(Problem::too_many("Too many wrong tokens; wait for a minute."));
        }
        app.wrong_tokens.failed(from);
        return Err(Problem::unauthorized("This token is not known, or has expired."));
    }
    if parts.headers.contains_key(header::AUTHORIZATION) {
        return Err(Problem::unauthorized(
            "The Authorization header is not one token: Authorization: Bearer te_… A proxy that asks for passwords itself must not pass the header on.",
        ));
    }
    if let Some(session) = session_of(app, &parts.headers).await? {
        match session.token {
            None => return Ok(Some(Actor::new(session.name, session.role))),
            Some(hash) => {
                if let Some(actor) = by_hash(app, &hash).await? {
                    return Ok(Some(actor));
                }
            }
        }
    }
    Ok(app.access.anybody.map(|role| Actor::new("anybody", role)))
}

/// The session of a cookie, unless it is forged, too old, or was ended.
pub(crate) async fn session_of(app: &App, headers: &HeaderMap) -> Result<Option<Session>, Problem> {
    let Some(cookie) = cookie(headers, COOKIE) else { return Ok(None) };
    let session = Session::read(cookie, app.keys.get(&*app.store).await?);
    let Some((session, id)) = session.and_then(|it| it.id().map(|id| (it, id))) else {
        return Ok(None);
    };
    Ok(if app.store.is_login_ended(id).await? { None } else { Some(session) })
}

/// Whose token this is.
pub(crate) async fn by_token(app: &App, token: &str) -> Result<Option<Actor>, Problem> {
    let Ok(secret) = token.parse::<Secret>() else { return Ok(None) };
    let row = app.store.token_by_hash(&secret.hash()).await?;
    Ok(row.map(|row| Actor::new(row.name, row.role)))
}

async fn by_hash(app: &App, hash: &str) -> Result<Option<Actor>, Problem> {
    let Some(hash) = session::from_hex(hash).and_then(|hash| hash.try_into().ok()) else {
        return Ok(None);
    };
    let row = app.store.token_by_hash(&hash).await?;
    Ok(row.map(|row| Actor::new(row.name, row.role)))
}

/// Who is on the other end; nobody in particular if the server does not say.
pub(crate) fn address(parts: &Parts) -> IpAddr {
    let peer = parts.extensions.get::<ConnectInfo<SocketAddr>>();
    peer.map_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED), |ConnectInfo(peer)| peer.ip())
}

/// Lets through who has at least this role.
pub(crate) async fn require(State(needs): State<Role>, request: Request, next: Next) -> Response {
    let known = request.extensions().get::<Known>().and_then(|known| known.0.as_ref());
    match known {
        None => Problem::unauthorized(
            "Log in, or send a token: Authorization: Bearer te_…  (`task-engine tokens create` makes one)",
        )
        .into_response(),
        Some(actor) if actor.role < needs => Problem::forbidden(format!(
            "{} has the role {}; this needs the role {needs}.",
            actor.name, actor.role
        ))
        .into_response(),
        Some(_) => next.run(request).await,
    }
}

/// Who is asking, in handlers whose route needs a role.
impl FromRequestParts<App> for Actor {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &App) -> Result<Self, Problem> {
        let known = parts.extensions.get::<Known>().and_then(|known| known.0.clone());
        known.ok_or_else(|| Problem::unauthorized("Log in, or send a token."))
    }
}

/// How somebody wants pages to look.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Shown {
    #[default]
    System,
    Light,
    Dark,
}

impl Shown {
    pub(crate) const COOKIE: &'static str = "task_engine_theme";

    pub(crate) fn of(headers: &HeaderMap) -> Self {
        Self::named(cookie(headers, Self::COOKIE).unwrap_or_default())
    }

    pub(crate) fn named(name: &str) -> Self {
        match name {
            "light" => Self::Light,
            "dark" => Self::Dark,
            _ => Self::System,
        }
    }

    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::System => "system",
            Self::Light => "light",
            Self::Dark => "dark",
        }
    }
}

pub(crate) fn cookie<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    let all = headers.get_all(header::COOKIE).iter().filter_map(|value| value.to_str().ok());
    all.flat_map(|line| line.split(';')).find_map(|pair| {
        let (key, value) = pair.trim().split_once('=')?;
        (key == name).then_some(value)
    })
}

/// The token, if there is one header and it has one.
fn bearer(headers: &HeaderMap) -> Option<&str> {
    if headers.get_all(header::AUTHORIZATION).iter().nth(1).is_some() {
        return None;
    }
    let (kind, token) = text(headers, &header::AUTHORIZATION)?.split_once(' ')?;
    kind.eq_ignore_ascii_case("bearer").then(|| token.trim())
}

fn text<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a str> {
    headers.get(name).and_then(|value| value.to_str().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_come_from_own_pages_or_from_programs() {
        for (headers, fits) in [
            (&[("sec-fetch-site", "same-origin")][..], true),
            (&[("sec-fetch-site", "cross-site"), ("content-type", "application/json")], false),
            (&[("sec-fetch-site", "same-site")], false),
            (&[("sec-fetch-site", "none")], false),
            (&[("origin", "http://127.0.0.1:8642")], true),
            (&[("origin", "http://127.0.0.1:8643")], false),
            (&[("origin", "http://evil.test"), ("content-type", "application/json")], false),
            (&[("origin", "null")], false),
            (&[("content-type", "application/json; charset=utf-8")], true),
            (&[("content-type", "application/json"), ("cookie", "a=b")], false),
            (&[("content-type", "text/plain")], false),
            (&[("content-type", "application/x-www-form-urlencoded")], false),
            (&[], false),
            (&[("authorization", "Bearer te_x"), ("content-type", "text/plain")], true),
        ] {
            let mut all = HeaderMap::new();
            all.insert("host", HeaderValue::from_static("127.0.0.1:8642"));
            for (name, value) in headers {
                all.insert(*name, HeaderValue::from_static(value));
            }
            assert_eq!(
                check_origin(&Method::POST, &Uri::from_static("/"), &all).is_ok(),
                fits,
                "{headers:?}"
            );
        }
    }

    #[test]
    fn requests_name_one_host() {
        for (uri, hosts, named) in [
            ("/", &["localhost"][..], Some("localhost")),
            ("http://LOCALHOST:80/", &["localhost:80"], Some("localhost:80")),
            ("http://localhost/", &[], Some("localhost")),
            ("/", &[], Some("")),
            ("/", &["localhost", "localhost"], None),
            ("/", &["localhost", "evil.test"], None),
            ("http://evil.test/", &["localhost"], None),
            ("http://localhost:81/", &["localhost:80"], None),
        ] {
            let mut headers = HeaderMap::new();
            for host in hosts {
                headers.append("host", HeaderValue::from_static(host));
            }
            let uri = Uri::from_static(uri);
            assert_eq!(one_host(&uri, &headers).ok(), named, "{uri} {hosts:?}");
        }
    }

    #[tokio::test]
    async fn what_hangs_is_given_up() {
        let soon = Duration::from_millis(10);
        let told = within(soon, std::future::pending()).await;
        assert_eq!(told.status(), 503);
        assert_eq!(within(soon, async { "ok".into_response() }).await.status(), 200);
    }

    #[test]
    fn cookies_by_name() {
        let mut headers = HeaderMap::new();
        headers.append("cookie", HeaderValue::from_static("a=1; task_engine_theme=dark"));
        headers.append("cookie", HeaderValue::from_static("b=x=y"));
        assert_eq!(cookie(&headers, "a"), Some("1"));
        assert_eq!(cookie(&headers, "b"), Some("x=y"));
        assert_eq!(cookie(&headers, "c"), None);
        assert_eq!(Shown::of(&headers), Shown::Dark);
    }
}
