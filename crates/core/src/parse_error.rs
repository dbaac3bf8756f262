//! A text that is none of our words.

/// Why a text is not a status, a role, an id or another word of Task Engine:
/// in words, with those that there are.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ParseError(pub String);

impl From<ParseError> for String {
    fn from(bad: ParseError) -> Self {
        bad.0
    }
}
