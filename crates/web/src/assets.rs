//! What pages load, all of it in the binary.

use std::sync::LazyLock;

use axum::extract::Path;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};

use crate::problem::Problem;

const STYLE: &str = include_str!("assets/style.css");
const SCRIPT: &str = include_str!("assets/script.js");
const ICON: &str = include_str!("assets/icon.svg");

/// Changes when one of them does, so that browsers may keep them.
pub(crate) static VERSION: LazyLock<String> = LazyLock::new(|| {
    let mut all = blake3::Hasher::new();
    for text in [STYLE, SCRIPT, ICON] {
        all.update(text.as_bytes());
    }
    all.finalize().to_hex()[..12].to_owned()
});

pub(crate) async fn asset(
    Path(name): Path<String>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let (text, kind) = match name.as_str() {
        "style.css" => (STYLE, "text/css; charset=utf-8"),
        "script.js" => (SCRIPT, "text/javascript; charset=utf-8"),
        "icon.svg" => (ICON, "image/svg+xml"),
        _ => return Err(Problem::not_found("There is no such file.")),
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
