//! The operator of commands: the user who types them, with all rights.

use std::sync::Arc;

use task_engine::Store;
use task_engine_core::process::host_name;
use task_engine_core::task::NAME_BYTES_MAX;
use task_engine_operations::{Actor, OperationError, Operator};
use task_engine_store::token::{Role, TERMINAL};

use crate::error::CliError;
use crate::escape::escape;

/// Performs operations on this store; the audit has them as `terminal:user@host`.
pub(crate) fn operator(store: &Arc<dyn Store>) -> Operator {
    Operator::new(Arc::clone(store), Actor::new(user(), Role::Admin))
}

/// The user, as far as the system knows.
fn user() -> String {
    let user = ["USER", "LOGNAME"].into_iter().find_map(|name| std::env::var(name).ok());
    let user = user.unwrap_or_else(|| format!("user {}", rustix::process::getuid().as_raw()));
    let mut name = String::new();
    for c in format!("{TERMINAL}{user}@{}", host_name()).chars() {
        if !c.is_control() && name.len() + c.len_utf8() <= NAME_BYTES_MAX {
            name.push(c);
        }
    }
    name
}

impl From<OperationError> for CliError {
    fn from(error: OperationError) -> Self {
        let text = escape(&error.to_string()).into_owned();
        match error {
            OperationError::Invalid { pointer, .. } if pointer.starts_with("/parameters") => {
                Self::Usage(format!("parameters: {text}"))
            }
            OperationError::Invalid { .. } => Self::Usage(text),
            OperationError::NotFound(_) => Self::NotFound(text),
            OperationError::Conflict(_) | OperationError::KeyReused(_) => Self::Conflict(text),
            OperationError::Store(error) => error.into(),
            OperationError::Partial { .. } => Self::Partial(text),
            _ => Self::Failure(text),
        }
    }
}
