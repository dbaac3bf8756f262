//! Limits: their use, and setting, clearing and opening them.

mod usage;

use serde_json::{Value, json};
use task_engine_core::display::{limit_key_text, limit_options_text, limit_target_text};
use task_engine_core::instance::InstanceRow;
use task_engine_core::limit::{
    InvalidLimit, Limit, LimitChange, LimitCleared, LimitOptions, LimitRow, LimitTarget, Rate,
};
use task_engine_core::secret::PLACEHOLDER;
use task_engine_core::suggest::did_you_mean;
use task_engine_store::contract::Store;
use task_engine_store::error::StoreError;

use crate::operator::{AuditedOperation, OperationError, Operator};
use crate::report::{OperationOutcome, OperationReport};

pub use usage::{
    KEYS_READ_MAX, KeyClosing, KeySummary, KeyWait, LimitDetails, LimitHolder, LimitList,
    LimitSummary, SuspendedFor, list, show,
};
pub(crate) use usage::{UsageFacts, closing, key_wait, next_start_at};

/// The changes of a limit.
///
/// Options that are not named stay as they are; a new limit has only the named ones.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LimitEdit {
    /// Which tasks a new limit applies to; by default, tasks that name it.
    pub target: Option<LimitTarget>,
    /// The parameter of its keys.
    ///
    /// `Some(None)` removes it; so for the others.
    pub key: Option<Option<String>>,
    /// The most running attempts.
    pub max: Option<Option<u32>>,
    /// The most starts in a window.
    pub rate: Option<Option<Rate>>,
    /// Whether starts are spread evenly over the window; without `rate`, for the rate it has.
    pub even: Option<bool>,
    /// Whether tasks of a key run in order.
    pub in_order: Option<bool>,
    /// Whether to begin without weights.
    pub without_weights: bool,
    /// The weights of keys.
    ///
    /// A weight of 1 is the default.
    pub weights: Vec<(String, u32)>,
}

impl LimitEdit {
    /// Replaces all options.
    #[must_use]
    pub fn replace(target: Option<LimitTarget>, options: LimitOptions) -> Self {
        Self {
            target,
            key: Some(options.key),
            max: Some(options.max),
            rate: Some(options.rate),
            even: None,
            in_order: Some(options.in_order),
            without_weights: true,
            weights: options.weights.into_iter().collect(),
        }
    }

    /// Returns whether it names no option.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        Self { target: None, ..self.clone() } == Self::default()
    }

    /// The limit as it is to be.
    fn apply(&self, name: &str, stored: Option<&Limit>) -> Result<Limit, OperationError> {
        if let (Some(stored), Some(target)) = (stored, &self.target)
            && stored.target != *target
        {
            return Err(OperationError::Conflict(format!(
                "limit {name} applies to {}, not to {}; give the new limit another name, or remove this one first",
                limit_target_text(&stored.target),
                limit_target_text(target)
            )));
        }
        let mut limit = stored.cloned().unwrap_or_else(|| Limit {
            name: name.to_owned(),
            target: self.target.clone().unwrap_or(LimitTarget::Named),
            options: LimitOptions::default(),
        });
        let options = &mut limit.options;
        if let Some(key) = &self.key {
            options.key.clone_from(key);
        }
        options.max = self.max.unwrap_or(options.max);
        options.rate = self.rate.unwrap_or(options.rate);
        match (self.even, &mut options.rate) {
            (None, _) => {}
            (Some(even), Some(rate)) => rate.even = even,
            (Some(_), None) => {
                return Err(invalid("/rate", format!("limit {name} has no rate to spread evenly")));
            }
        }
        options.in_order = self.in_order.unwrap_or(options.in_order);
        if self.without_weights {
            options.weights.clear();
        }
        for (key, weight) in &self.weights {
            options.weights.insert(key.clone(), *weight);
        }
        // A maximum of 1 says the same.
        if options.in_order && self.max.is_none() && self.in_order == Some(true) {
            options.max = None;
        }
        limit.check().map_err(OperationError::from)?;
        limit.options.weights.retain(|_, weight| *weight != 1);
        Ok(limit)
    }
}

impl Operator {
    /// Adds a limit, or changes its options.
    ///
    /// It applies to every claim from now on; running attempts count, and continue.
    pub async fn set_limit(
        &self,
        name: &str,
        edit: &LimitEdit,
    ) -> Result<OperationReport, OperationError> {
        let rows = self.store.limits().await?;
        let stored = rows.iter().find(|row| row.limit.name == name);
        let limit = edit.apply(name, stored.map(|row| &row.limit))?;
        let engines = self.store.instances(None).await?;
        if let Some(class) = secret_key_of(&limit, &engines) {
            let key = limit.options.key.unwrap_or_default();
            return Err(InvalidLimit::SecretKey { name: name.to_owned(), key, class }.into());
        }
        let work = async {
            let change = self.store.set_limit(&limit).await.map_err(refused)?;
            let outcome = match change {
                LimitChange::Added => OperationOutcome::Added,
                LimitChange::Unchanged => OperationOutcome::Unchanged,
                _ => OperationOutcome::Changed,
            };
            Ok(OperationReport {
                message: format!(
                    "Limit {name} {}: for {}, {}.",
                    outcome.text(),
                    limit_target_text(&limit.target),
                    limit_options_text(&limit.options)
                ),
                ..OperationReport::of(outcome)
            })
        };
        let audited = AuditedOperation::new("limits.set", name).detail(options_of(&limit));
        self.audited(audited, work).await
    }

    /// Removes a limit.
    ///
    /// If engines declare it, the declared options apply again.
    pub async fn clear_limit(&self, name: &str) -> Result<OperationReport, OperationError> {
        let row = find(&*self.store, name).await?;
        if row.declared.is_some() && !row.set_by_operator {
            return Err(only_declared(name));
        }
        let work = async {
            match self.store.clear_limit(name).await.map_err(refused)? {
                LimitCleared::Removed => Ok(OperationReport::of(OperationOutcome::Removed)),
                LimitCleared::Declared => Ok(OperationReport::of(OperationOutcome::Cleared)),
                LimitCleared::OnlyDeclared => Err(only_declared(name)),
                LimitCleared::NotFound => Err(not_found(name, &[])),
            }
        };
        self.audited(AuditedOperation::new("limits.clear", name), work).await
    }

    /// Opens a key that is closed, so that its tasks start again.
    pub async fn open_limit_key(
        &self,
        name: &str,
        key: &str,
    ) -> Result<OperationReport, OperationError> {
        let row = find(&*self.store, name).await?;
        let shown = match key {
            "" => String::new(),
            key => format!(": {}", limit_key_text(row.limit.options.key.as_deref(), key)),
        };
        let work = async {
            let (outcome, text) = match self.store.open_limit_key(name, key).await? {
                true => (OperationOutcome::Opened, "was opened"),
                false => (OperationOutcome::NotClosed, "was not closed"),
            };
            Ok(OperationReport {
                message: format!("Limit {name}{shown} {text}."),
                ..OperationReport::of(outcome)
            })
        };
        let audited = AuditedOperation::new("limits.open", name).detail(json!({ "key": key }));
        self.audited(audited, work).await
    }
}

/// Returns the limit of this name.
pub async fn find(store: &dyn Store, name: &str) -> Result<LimitRow, OperationError> {
    let mut rows = store.limits().await?;
    match rows.iter().position(|row| row.limit.name == name) {
        Some(at) => Ok(rows.swap_remove(at)),
        None => Err(not_found(name, &rows)),
    }
}

/// The class that has declared the key of a limit secret, if one has.
fn secret_key_of(limit: &Limit, engines: &[InstanceRow]) -> Option<String> {
    limit.options.key.as_ref()?;
    let mut classes = engines.iter().flat_map(|engine| &engine.classes);
    let found = classes.find(|(class, options)| {
        let applies = match &limit.target {
            LimitTarget::Class(name) => name == *class,
            LimitTarget::Queue(_) | LimitTarget::Named => true,
        };
        applies && limit.options.has_secret_key(&options.secret)
    });
    found.map(|(class, _)| class.clone())
}

/// Keys of a secret parameter are not shown.
pub(crate) fn redact_key(row: &LimitRow, key: &mut String, engines: &[InstanceRow]) {
    if !key.is_empty() && secret_key_of(&row.limit, engines).is_some() {
        PLACEHOLDER.clone_into(key);
    }
}

fn not_found(name: &str, rows: &[LimitRow]) -> OperationError {
    let names = rows.iter().map(|row| row.limit.name.as_str());
    OperationError::NotFound(format!("there is no limit {name}{}", did_you_mean(name, names)))
}

fn only_declared(name: &str) -> OperationError {
    OperationError::Conflict(format!(
        "engines declare limit {name}, so it cannot be removed here; set other options, or remove it from the code or task-engine.toml"
    ))
}

fn invalid(pointer: &str, message: String) -> OperationError {
    OperationError::Invalid { pointer: pointer.to_owned(), message }
}

/// A store refuses what changed since it was read here.
fn refused(error: StoreError) -> OperationError {
    match error {
        StoreError::Refused(why) => OperationError::Conflict(why),
        StoreError::InvalidData(why) => OperationError::invalid(why),
        error => error.into(),
    }
}

impl From<InvalidLimit> for OperationError {
    fn from(error: InvalidLimit) -> Self {
        let pointer = match &error {
            InvalidLimit::Max { .. } | InvalidLimit::OrderWithMax { .. } => "/max",
            InvalidLimit::Rate { .. } => "/rate",
            InvalidLimit::Key { .. } | InvalidLimit::SecretKey { .. } => "/key",
            InvalidLimit::Weight { .. } => "/weights",
            _ => "",
        };
        invalid(pointer, error.to_string())
    }
}

fn options_of(limit: &Limit) -> Value {
    json!({ "target": limit.target, "options": limit_options_text(&limit.options) })
}

#[cfg(test)]
mod tests;
