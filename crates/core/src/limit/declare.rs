//! Limits as a class or a queue declares them.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::{InvalidLimit, Limit, LimitOptions, LimitTarget};
use crate::display::{count, span};

/// A limit among the options of a class: see [`TaskOptions::limit`].
///
/// [`TaskOptions::limit`]: crate::task::TaskOptions::limit
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClassLimit {
    /// Its name.
    ///
    /// A limit without a name gets one after the class: see [`LimitOptions::name_for`].
    pub name: Option<String>,
    /// Its options.
    pub options: LimitOptions,
}

impl ClassLimit {
    /// Returns the limit of this class.
    #[must_use]
    pub fn of_class(&self, class: &str) -> Limit {
        Limit {
            name: self.name.clone().unwrap_or_else(|| self.options.name_for(class)),
            target: LimitTarget::Class(class.to_owned()),
            options: self.options.clone(),
        }
    }
}

impl LimitOptions {
    /// Returns the name of a limit of a class or queue that was declared without a name.
    ///
    /// For the class `sync` it is `sync` for a maximum, `sync.rate` for a rate alone, `sync.order`
    /// for tasks in order, and `sync.fair` for a key alone.
    #[must_use]
    pub fn name_for(&self, owner: &str) -> String {
        let part = match self {
            Self { in_order: true, .. } => ".order",
            Self { max: Some(_), .. } => "",
            Self { rate: Some(_), .. } => ".rate",
            Self { key: Some(_), .. } => ".fair",
            _ => "",
        };
        format!("{owner}{part}")
    }

    /// Returns whether its key is a secret parameter, or contains one: keys are visible.
    #[must_use]
    pub fn has_secret_key(&self, secret_paths: &[impl AsRef<str>]) -> bool {
        self.key.as_ref().is_some_and(|key| {
            let first = |path: &str| path.split('.').next().map(str::to_owned);
            let mut firsts = secret_paths.iter().filter_map(|path| first(path.as_ref()));
            firsts.any(|first| first == "*" || first == *key)
        })
    }
}

/// `max 2, rate 100 per 1 s, key "customer"`.
impl fmt::Display for LimitOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut parts = Vec::new();
        parts.extend(self.max.map(|max| format!("max {max}")));
        parts.extend(self.rate.map(|rate| {
            let even = if rate.even { " evenly" } else { "" };
            format!("rate {} per {}{even}", rate.max, span(rate.per))
        }));
        parts.extend(self.in_order.then(|| "in order".to_owned()));
        parts.extend(self.key.as_ref().map(|key| format!("key {key:?}")));
        if !self.weights.is_empty() {
            parts.push(count(self.weights.len(), "weight"));
        }
        f.write_str(&parts.join(", "))
    }
}

/// Checks the limits that an engine declares: each is valid, names are unique, and no class
/// or queue has too many.
pub fn check_declared(limits: &[Limit]) -> Result<(), InvalidLimit> {
    let mut per_target: std::collections::BTreeMap<&LimitTarget, usize> =
        std::collections::BTreeMap::new();
    let mut names = std::collections::HashSet::new();
    for limit in limits {
        limit.check()?;
        if !names.insert(&limit.name) {
            return Err(InvalidLimit::Duplicate { name: limit.name.clone() });
        }
        *per_target.entry(&limit.target).or_default() += 1;
    }
    for (target, count) in per_target {
        let what = match target {
            LimitTarget::Class(name) => format!("class {name:?}"),
            LimitTarget::Queue(name) => format!("queue {name:?}"),
            LimitTarget::Named => continue,
        };
        if count > super::LIMITS_MAX {
            return Err(InvalidLimit::TooMany { what, count });
        }
    }
    Ok(())
}
