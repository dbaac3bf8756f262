//! The error of parsing a status, a role, an id or another token.

/// The error of a text that is not a status, a role, an id or another token; it lists the valid
/// values.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ParseError(pub String);

impl From<ParseError> for String {
    fn from(error: ParseError) -> Self {
        error.0
    }
}
