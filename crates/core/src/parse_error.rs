//! The error of parsing a status, a role, an id or another token.

/// Why a text is not a status, a role, an id or another token: a message that lists the
/// valid values.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ParseError(pub String);

impl From<ParseError> for String {
    fn from(error: ParseError) -> Self {
        error.0
    }
}
