//! All routes, each with the role that it needs. A route cannot be added without
//! one.

use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::handler::Handler;
use axum::http::StatusCode;
use axum::middleware::{from_fn, from_fn_with_state};
use axum::routing::{MethodRouter, delete, get, patch, post, put};
use task_engine_store::token::Role;

use crate::app::App;
use crate::error::ApiError;
use crate::{api, guard, pages};

/// A route and its role.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Route {
    /// `GET`, `POST`, `PUT`, `PATCH`, `DELETE`.
    pub method: &'static str,
    /// The path, with `{names}` of parameters.
    pub path: &'static str,
    /// The lowest role that may use it; `None`: open to all.
    pub needs: Option<Role>,
}

/// Collects routes.
#[derive(Default)]
pub(crate) struct Routes {
    router: Router<App>,
    list: Vec<Route>,
}

/// Larger bodies are refused.
pub(crate) const BODY_MAX_BYTES: usize = 16 * 1024 * 1024;
/// For requests without authentication.
const OPEN_BODY_MAX_BYTES: usize = 64 * 1024;

/// A function for each method.
macro_rules! methods {
    ($($method:ident $name:literal),*) => {
        impl Routes {
            $(pub(crate) fn $method<H: Handler<T, App>, T: 'static>(
                self,
                path: &'static str,
                needs: Role,
                handler: H,
            ) -> Self {
                self.add($name, path, needs, $method(handler))
            })*
        }
    };
}

methods!(get "GET", post "POST", put "PUT", patch "PATCH", delete "DELETE");

impl Routes {
    /// Without authentication.
    pub(crate) fn open<H: Handler<T, App>, T: 'static>(
        mut self,
        path: &'static str,
        handler: H,
    ) -> Self {
        self.list.push(Route { method: "GET", path, needs: None });
        self.router = self.router.route(path, get(handler));
        self
    }

    /// The same for forms: login, logout, theme.
    pub(crate) fn open_post<H: Handler<T, App>, T: 'static>(
        mut self,
        path: &'static str,
        handler: H,
    ) -> Self {
        self.list.push(Route { method: "POST", path, needs: None });
        let limit = DefaultBodyLimit::max(OPEN_BODY_MAX_BYTES);
        self.router = self.router.route(path, post(handler).layer(limit));
        self
    }

    fn add(
        mut self,
        method: &'static str,
        path: &'static str,
        needs: Role,
        handler: MethodRouter<App>,
    ) -> Self {
        self.list.push(Route { method, path, needs: Some(needs) });
        let guarded = handler.layer(from_fn_with_state(needs, guard::require));
        self.router = self.router.route(path, guarded);
        self
    }
}

fn collect() -> Routes {
    api::routes(pages::routes(Routes::default()))
}

pub(crate) fn all() -> Vec<Route> {
    collect().list
}

pub(crate) fn router(app: App) -> Router {
    collect()
        .router
        .fallback(|| async { ApiError::not_found("There is nothing at this address.") })
        .method_not_allowed_fallback(|| async {
            ApiError::new(
                StatusCode::METHOD_NOT_ALLOWED,
                "This address does not support this method.",
            )
        })
        .layer(DefaultBodyLimit::max(BODY_MAX_BYTES))
        .layer(from_fn(plain_rejections))
        .layer(from_fn_with_state(app.clone(), guard::guard))
        .with_state(app)
}

/// Turns rejections of axum (body too large, unreadable query) into an `ApiError`.
async fn plain_rejections(
    request: axum::extract::Request,
    next: axum::middleware::Next,
) -> axum::response::Response {
    use axum::response::IntoResponse;
    let response = next.run(request).await;
    let plain = response.status().is_client_error()
        && response.extensions().get::<ApiError>().is_none()
        && response
            .headers()
            .get(axum::http::header::CONTENT_TYPE)
            .is_some_and(|kind| kind.as_bytes().starts_with(b"text/plain"));
    if !plain {
        return response;
    }
    let status = response.status();
    let body = axum::body::to_bytes(response.into_body(), 64 * 1024).await.unwrap_or_default();
    let detail = String::from_utf8_lossy(&body).into_owned();
    ApiError::new(status, detail).into_response()
}
