//! What a file contains about limits: those that operators have set, and closed keys. What
//! engines declare, they declare again.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use task_engine_core::limit::{Limit, LimitOptions, LimitTarget};

/// A limit that an operator has set, or that has closed keys.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LimitRecord {
    /// Its name.
    pub name: String,
    /// Which tasks it applies to.
    pub target: LimitTarget,
    /// What engines declare.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub declared: Option<LimitOptions>,
    /// What an operator has set, which applies.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub operator: Option<LimitOptions>,
    /// Keys that start no attempt for some time.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub closed_keys: Vec<ClosedKeyRecord>,
}

/// A closed key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[allow(missing_docs)] // The names say it.
pub struct ClosedKeyRecord {
    pub key: String,
    pub until: Timestamp,
    pub reason: String,
}

impl LimitRecord {
    /// Returns the limit as it applies.
    #[must_use]
    pub fn limit(&self) -> Limit {
        let options = self.operator.as_ref().or(self.declared.as_ref());
        Limit {
            name: self.name.clone(),
            target: self.target.clone(),
            options: options.cloned().unwrap_or_default(),
        }
    }

    /// Checks what a store does not check.
    pub(super) fn check(&self) -> Result<(), String> {
        let all = [&self.declared, &self.operator];
        if all.iter().all(|options| options.is_none()) {
            return Err(format!("limit {:?} has no options", self.name));
        }
        for options in all.into_iter().flatten() {
            let limit = Limit { options: options.clone(), ..self.limit() };
            limit.check().map_err(|why| why.to_string())?;
        }
        Ok(())
    }
}
