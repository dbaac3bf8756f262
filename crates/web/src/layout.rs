//! The layout of every page.

use std::convert::Infallible;

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use maud::{DOCTYPE, Markup, html};
use task_engine_store::audit::AuditFilter;
use task_engine_store::check::Verdict;
use task_engine_store::token::Role;

use crate::access::Actor;
use crate::app::App;
use crate::assets;
use crate::error::ApiError;
use crate::guard::Theme;

/// The pages in the order of the navigation: name, path, key after `g`.
const PAGES: [(&str, &str, &str); 10] = [
    ("Overview", "/", "o"),
    ("Tasks", "/tasks", "t"),
    ("Flows", "/flows", "f"),
    ("Errors", "/errors", "e"),
    ("Queues", "/queues", "q"),
    ("Limits", "/limits", "l"),
    ("Schedules", "/schedules", "s"),
    ("Instances", "/instances", "i"),
    ("Health", "/health", "h"),
    ("Audit", "/audit", "a"),
];

/// The user of a page, and the preferences.
#[derive(Debug, Clone)]
pub(crate) struct Viewer {
    pub(crate) actor: Actor,
    pub(crate) theme: Theme,
    /// The path of the page, with its query: forms return to it.
    pub(crate) here: String,
    /// The audit entry of the change that led here.
    pub(crate) done: Option<i64>,
    /// Whether the user can log out.
    has_session: bool,
}

impl Viewer {
    pub(crate) fn may(&self, role: Role) -> bool {
        self.actor.role >= role
    }
}

impl FromRequestParts<App> for Viewer {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, ApiError> {
        let actor = Actor::from_request_parts(parts, app).await?;
        let query = parts.uri.query().unwrap_or_default();
        let (mut kept, mut done) = (Vec::new(), None);
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            match pair.strip_prefix("done=") {
                Some(id) => done = id.parse().ok(),
                None => kept.push(pair),
            }
        }
        let query = if kept.is_empty() { String::new() } else { format!("?{}", kept.join("&")) };
        Ok(Self {
            actor,
            theme: Theme::of(&parts.headers),
            here: format!("{}{query}", parts.uri.path()),
            done,
            has_session: crate::guard::cookie(&parts.headers, crate::guard::COOKIE).is_some(),
        })
    }
}

/// For pages without authentication.
impl FromRequestParts<App> for Theme {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &App) -> Result<Self, Infallible> {
        Ok(Self::of(&parts.headers))
    }
}

/// A page. `path`: that of its entry in the navigation.
pub(crate) async fn page(
    app: &App,
    viewer: &Viewer,
    title: &str,
    path: &str,
    main: Markup,
) -> Markup {
    let flash = flash(app, viewer).await;
    let health = health(app).await;
    html! {
        (head(app, title, viewer.theme))
        body data-base=(app.base) data-events=(app.path("/events")) {
            a .skip href="#main" { "Skip to the content" }
            header .bar {
                a .brand href=(app.path("/")) {
                    img src=(asset(app, "icon.svg")) alt="" width="26" height="26";
                    span { "Task Engine" }
                }
                nav aria-label="Pages" {
                    @for (name, to, key) in PAGES {
                        @if name != "Audit" || viewer.may(Role::Admin) {
                            a href=(app.path(to)) data-go=(key) title={ "Keys: g " (key) }
                              aria-current=[(to == path).then_some("page")] { (name) }
                        }
                    }
                }
                div .tools {
                    (health)
                    button .quiet #live type="button" hidden aria-pressed="true"
                           title="Live updates are on; press to pause (key p)" { "Live" }
                    (themes(app, viewer))
                    (user(app, viewer))
                }
            }
            main #main tabindex="-1" {
                (flash)
                (main)
            }
            footer {
                span { "Task Engine " (env!("CARGO_PKG_VERSION")) }
                span { (app.store.location()) }
                span { "Times in " (app.zone.iana_name().unwrap_or("local time")) }
                a href=(app.path("/api/v1/openapi.json")) { "HTTP API" }
                button .quiet #keys type="button" hidden { "Keys (?)" }
            }
            div .visually-hidden #announcement role="status" aria-live="polite" {}
        }
    }
}

/// The page of an error. It reads nothing from the database.
pub(crate) fn error_page(app: &App, error: &ApiError, theme: Theme) -> Markup {
    html! {
        (head(app, error.title, theme))
        body {
            header .bar {
                a .brand href=(app.path("/")) {
                    img src=(asset(app, "icon.svg")) alt="" width="26" height="26";
                    span { "Task Engine" }
                }
            }
            main #main {
                section .card .problem {
                    h1 { (error.title) " " small { "(" (error.status.as_u16()) ")" } }
                    p { (error.detail) }
                    p { a href=(app.path("/")) { "Back to the overview" } }
                }
            }
        }
    }
}

pub(crate) fn head(app: &App, title: &str, theme: Theme) -> Markup {
    html! {
        (DOCTYPE)
        html lang="en" data-theme=(theme.as_str());
        head {
            meta charset="utf-8";
            meta name="viewport" content="width=device-width, initial-scale=1";
            meta name="color-scheme" content="light dark";
            meta name="robots" content="noindex";
            title { (title) " · Task Engine" }
            link rel="icon" type="image/svg+xml" href=(asset(app, "icon.svg"));
            link rel="stylesheet" href=(asset(app, "style.css"));
            script src=(asset(app, "idiomorph.min.js")) defer {}
            script src=(asset(app, "script.js")) defer {}
        }
    }
}

fn asset(app: &App, name: &str) -> String {
    app.path(&format!("/assets/{name}?{}", *assets::VERSION))
}

/// The outcome of the change that led here, from the audit.
async fn flash(app: &App, viewer: &Viewer) -> Markup {
    let Some(id) = viewer.done else { return html! {} };
    let filter = AuditFilter { before: id.checked_add(1), ..AuditFilter::newest(1) };
    let entries = app.store.audit_page(&filter).await.unwrap_or_default();
    // Only for its own actor.
    let entry =
        entries.into_iter().find(|entry| entry.id == id && entry.actor == viewer.actor.name);
    let Some(entry) = entry else { return html! {} };
    let text = task_engine_operations::report::audit_sentence(&entry);
    let class =
        if entry.outcome == task_engine_store::audit::AuditOutcome::Done { "good" } else { "bad" };
    html! { p .flash .(class) role="status" { (text) } }
}

/// The worst verdict of the checks.
async fn health(app: &App) -> Markup {
    let worst = match app.cache.checks().await {
        Ok(checks) => checks.iter().map(|check| check.verdict).max(),
        Err(_) => return html! { span .verdict .bad { "database unavailable" } },
    };
    let (class, label) = match worst {
        Some(Verdict::Wrong) => ("bad", "problems"),
        Some(Verdict::Warning) => ("warn", "warnings"),
        _ => return html! {},
    };
    html! { a .verdict .(class) href=(app.path("/health")) { (label) } }
}

fn themes(app: &App, viewer: &Viewer) -> Markup {
    html! {
        form .themes method="post" action=(app.path("/theme")) aria-label="Colours" {
            input type="hidden" name="to" value=(viewer.here);
            @for (theme, sign) in [(Theme::Light, "☀"), (Theme::Dark, "☾"), (Theme::System, "◐")] {
                button .quiet name="theme" value=(theme.as_str())
                       aria-pressed=(if viewer.theme == theme { "true" } else { "false" })
                       title={ "Colours: " (theme.as_str()) } aria-label=(theme.as_str()) { (sign) }
            }
        }
    }
}

fn user(app: &App, viewer: &Viewer) -> Markup {
    html! {
        span .user title="Your role" { (viewer.actor.name) " · " (viewer.actor.role) }
        @if app.access.authenticate.is_none() {
            @if viewer.has_session {
                form method="post" action=(app.path("/logout")) { button .quiet { "Log out" } }
            } @else if app.access.anonymous.is_some_and(|role| role < Role::Admin) {
                a href=(app.path("/login")) { "Log in" }
            }
        }
    }
}
