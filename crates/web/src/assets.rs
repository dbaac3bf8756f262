//! Scripts, styles and the icon, compiled into the binary.

use std::sync::LazyLock;

use axum::extract::Path;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};

use crate::error::ApiError;

const STYLE: &str = include_str!("assets/style.css");
const SCRIPT: &str = include_str!("assets/script.js");
/// Updates a page in place; it keeps focus, selection and entered text.
const IDIOMORPH: &str = include_str!("assets/idiomorph.min.js");
const ICON: &str = include_str!("assets/icon.svg");

/// A hash of all, so that browsers may cache them.
pub(crate) static VERSION: LazyLock<String> = LazyLock::new(|| {
    let mut all = blake3::Hasher::new();
    for text in [STYLE, SCRIPT, IDIOMORPH, ICON] {
        all.update(text.as_bytes());
    }
    all.finalize().to_hex()[..12].to_owned()
});

pub(crate) async fn asset(
    Path(name): Path<String>,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    let (text, kind) = match name.as_str() {
        "style.css" => (STYLE, "text/css; charset=utf-8"),
        "script.js" => (SCRIPT, "text/javascript; charset=utf-8"),
        "idiomorph.min.js" => (IDIOMORPH, "text/javascript; charset=utf-8"),
        "icon.svg" => (ICON, "image/svg+xml"),
        _ => return Err(ApiError::not_found("No such file.")),
    };
    let tag = format!("\"{}\"", *VERSION);
    let known =
        headers.get(header::IF_NONE_MATCH).is_some_and(|it| it.as_bytes() == tag.as_bytes());
    let about = [
        (header::CONTENT_TYPE, kind),
        (header::CACHE_CONTROL, "public, max-age=86400"),
        (header::ETAG, &tag),
    ];
    if known {
        return Ok((StatusCode::NOT_MODIFIED, about).into_response());
    }
    Ok((about, text).into_response())
}
