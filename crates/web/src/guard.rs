//! Checks every request: host, origin and user. Sets the security headers.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use axum::body::Body;
use axum::extract::{ConnectInfo, FromRequestParts, Request, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Uri, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Redirect, Response};
use task_engine_store::token::{Role, TokenSecret};

use crate::access::Actor;
use crate::app::{App, encoded};
use crate::error::ApiError;
use crate::layout;
use crate::routes::BODY_MAX_BYTES;
use crate::session::{self, LoginSession};
use crate::visible;

pub(crate) const COOKIE: &str = "task_engine_session";

/// No foreign and no inline resources, no frames; trusted types allow one function
/// to parse HTML.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; \
    connect-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'; \
    require-trusted-types-for 'script'; trusted-types task-engine";

/// The time limit of requests that only read.
const READ_TIMEOUT: Duration = Duration::from_secs(30);

/// The user of a request, if known.
#[derive(Debug, Clone)]
struct Identity(Option<Actor>);

pub(crate) async fn guard(State(app): State<App>, request: Request, next: Next) -> Response {
    let (mut parts, body) = request.into_parts();
    let path = parts.uri.path().to_owned();
    // After the login, the browser returns to a page, never to a form action.
    let target = if parts.method.is_safe() { parts.uri.path_and_query() } else { None };
    let target = target.map_or_else(|| "/".to_owned(), ToString::to_string);
    let theme = Theme::of(&parts.headers);
    let reads = parts.method.is_safe();
    let answer = async {
        match admit(&app, &mut parts).await {
            Ok(()) => next.run(Request::from_parts(parts, body)).await,
            Err(problem) => problem.into_response(),
        }
    };
    // A change is never interrupted.
    let mut response = if reads { with_timeout(READ_TIMEOUT, answer).await } else { answer.await };
    if !is_for_programs(&path)
        && let Some(problem) = response.extensions_mut().remove::<ApiError>()
    {
        let later = response.headers_mut().remove(header::RETRY_AFTER);
        response = error_page(&app, &problem, &target, theme);
        if let Some(later) = later {
            response.headers_mut().insert(header::RETRY_AFTER, later);
        }
    }
    response = with_visible_text(response).await;
    if response.status() == StatusCode::PAYLOAD_TOO_LARGE {
        // The rest of the body is not read.
        response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
    let headers = response.headers_mut();
    for (name, value) in [
        ("content-security-policy", POLICY),
        ("x-content-type-options", "nosniff"),
        // Not `no-referrer`: with it, forms send `Origin: null` even to their own
        // server, and over plain HTTP browsers send no other header.
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

/// Escapes invisible characters. Pages are rendered in memory, not streamed.
async fn with_visible_text(response: Response) -> Response {
    let kind = response.headers().get(header::CONTENT_TYPE);
    if !kind.is_some_and(|kind| kind.as_bytes().starts_with(b"text/html")) {
        return response;
    }
    let (parts, body) = response.into_parts();
    let Ok(bytes) = axum::body::to_bytes(body, usize::MAX).await else {
        return ApiError::unavailable("The page could not be rendered. Try again.").into_response();
    };
    let text = visible::page(&String::from_utf8_lossy(&bytes)).into_owned();
    Response::from_parts(parts, Body::from(text))
}

/// A hanging database must not keep requests open.
async fn with_timeout(time: Duration, answer: impl Future<Output = Response>) -> Response {
    tokio::time::timeout(time, answer).await.unwrap_or_else(|_| {
        tracing::warn!("a request timed out: the database does not answer");
        ApiError::unavailable("The database does not answer. Try again in a moment.")
            .into_response()
    })
}

/// Paths whose errors are JSON.
fn is_for_programs(path: &str) -> bool {
    path.starts_with("/api/") || matches!(path, "/metrics" | "/livez" | "/readyz" | "/events")
}

fn error_page(app: &App, problem: &ApiError, target: &str, theme: Theme) -> Response {
    if problem.status == axum::http::StatusCode::UNAUTHORIZED && app.access.authenticate.is_none() {
        let to = app.path(&format!("/login?to={}", encoded(target)));
        return Redirect::to(&to).into_response();
    }
    (problem.status, layout::error_page(app, problem, theme)).into_response()
}

async fn admit(app: &App, parts: &mut Parts) -> Result<(), ApiError> {
    check_host(app, &parts.uri, &parts.headers)?;
    check_length(&parts.headers)?;
    let actor = identify(app, parts).await?;
    if !parts.method.is_safe() {
        check_origin(&parts.method, &parts.uri, &parts.headers)?;
    }
    parts.extensions.insert(Identity(actor));
    Ok(())
}

/// The request must name this server.
fn check_host(app: &App, uri: &Uri, headers: &HeaderMap) -> Result<(), ApiError> {
    let host = one_host(uri, headers)?;
    if app.access.knows_host(host) {
        return Ok(());
    }
    Err(ApiError::misdirected(
        "The host name of the request is not one of this server. Allow it with --web-url.",
    ))
}

/// Two different names are refused: a proxy may have checked the other one.
fn one_host<'a>(uri: &'a Uri, headers: &'a HeaderMap) -> Result<&'a str, ApiError> {
    let mut all = headers.get_all(header::HOST).iter();
    let named = all.next().map(|host| host.to_str().unwrap_or_default());
    let target = uri.authority().map(|authority| authority.as_str());
    match (named, target) {
        _ if all.next().is_some() => {
            Err(ApiError::bad_request("The request has more than one Host header. Send one."))
        }
        (Some(named), Some(target)) if !named.eq_ignore_ascii_case(target) => {
            Err(ApiError::bad_request(
                "The request line names another host than the Host header. Send the same in both.",
            ))
        }
        (named, target) => Ok(named.or(target).unwrap_or_default()),
    }
}

/// Refuses large bodies before they are sent.
fn check_length(headers: &HeaderMap) -> Result<(), ApiError> {
    let length = text(headers, &header::CONTENT_LENGTH).map(str::parse::<u64>);
    match length {
        Some(Ok(length)) if length <= BODY_MAX_BYTES as u64 => Ok(()),
        None => Ok(()),
        Some(_) => Err(ApiError::too_large()),
    }
}

/// A change must come from a page of this server, or from a program: with a token,
/// or with a body type that forms of other sites cannot send.
fn check_origin(method: &Method, uri: &Uri, headers: &HeaderMap) -> Result<(), ApiError> {
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
    Err(ApiError::forbidden(
        "A change must come from a page of this dashboard. Programs send a token (Authorization: Bearer …) or, where none is needed, a body of type application/json.",
    ))
}

/// By token, then by session, then anonymous.
async fn identify(app: &App, parts: &Parts) -> Result<Option<Actor>, ApiError> {
    if let Some(authenticate) = &app.access.authenticate {
        return Ok(authenticate(parts));
    }
    let from = address(parts);
    if let Some(token) = bearer(&parts.headers) {
        // A valid token is never limited: tokens cannot be guessed, and other
        // clients may share the address.
        if let Some(actor) = by_token(app, token).await? {
            return Ok(Some(actor));
        }
        if app.token_failures.too_many(from) {
            return Err(ApiError::too_many("Too many invalid tokens; wait a minute."));
        }
        app.token_failures.failed(from);
        return Err(ApiError::unauthorized("The token is unknown, expired or revoked."));
    }
    if parts.headers.contains_key(header::AUTHORIZATION) {
        return Err(ApiError::unauthorized(
            "The Authorization header is not a token: send Authorization: Bearer te_… A proxy with its own passwords must remove the header.",
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
    Ok(app.access.anonymous.map(|role| Actor::new("anonymous", role)))
}

/// The session of the cookie, unless it is forged, expired or ended.
pub(crate) async fn session_of(
    app: &App,
    headers: &HeaderMap,
) -> Result<Option<LoginSession>, ApiError> {
    let Some(cookie) = cookie(headers, COOKIE) else { return Ok(None) };
    let session = LoginSession::read(cookie, app.keys.get(&*app.store).await?);
    let Some((session, id)) = session.and_then(|it| it.id().map(|id| (it, id))) else {
        return Ok(None);
    };
    Ok(if app.store.is_login_ended(id).await? { None } else { Some(session) })
}

/// The actor of a token.
pub(crate) async fn by_token(app: &App, token: &str) -> Result<Option<Actor>, ApiError> {
    let Ok(secret) = token.parse::<TokenSecret>() else { return Ok(None) };
    let row = app.store.token_by_hash(&secret.hash()).await?;
    Ok(row.map(|row| Actor::new(row.name, row.role)))
}

async fn by_hash(app: &App, hash: &str) -> Result<Option<Actor>, ApiError> {
    let Some(hash) = session::from_hex(hash).and_then(|hash| hash.try_into().ok()) else {
        return Ok(None);
    };
    let row = app.store.token_by_hash(&hash).await?;
    Ok(row.map(|row| Actor::new(row.name, row.role)))
}

/// The address of the client; unspecified if the server does not know it.
pub(crate) fn address(parts: &Parts) -> IpAddr {
    let peer = parts.extensions.get::<ConnectInfo<SocketAddr>>();
    peer.map_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED), |ConnectInfo(peer)| peer.ip())
}

/// Lets requests pass that have at least this role.
pub(crate) async fn require(State(needs): State<Role>, request: Request, next: Next) -> Response {
    let actor = request.extensions().get::<Identity>().and_then(|identity| identity.0.as_ref());
    match actor {
        None => ApiError::unauthorized(
            "Log in, or send a token: Authorization: Bearer te_…  (`task-engine tokens create` makes one)",
        )
        .into_response(),
        Some(actor) if actor.role < needs => ApiError::forbidden(format!(
            "{} has the role {}; this needs the role {needs}.",
            actor.name, actor.role
        ))
        .into_response(),
        Some(_) => next.run(request).await,
    }
}

/// The user, in handlers whose route needs a role.
impl FromRequestParts<App> for Actor {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &App) -> Result<Self, ApiError> {
        let actor = parts.extensions.get::<Identity>().and_then(|identity| identity.0.clone());
        actor.ok_or_else(|| ApiError::unauthorized("Log in, or send a token."))
    }
}

/// The colours of the pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Theme {
    #[default]
    System,
    Light,
    Dark,
}

impl Theme {
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

/// The bearer token, unless there are several headers.
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
mod tests;
