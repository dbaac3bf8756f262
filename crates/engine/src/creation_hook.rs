//! Hooks on creation.
//!
//! A hook sees each task before it goes to the store, whichever method of
//! [`TaskEngine`](crate::TaskEngine) creates it, in the order in which the hooks were
//! added. It may add to the context, set queue or priority, make the task unique, or
//! refuse it. It runs in the creator, and must not block. Tasks of schedules and
//! tasks that are created in SQL pass no hooks: any engine may fire a slot, also one
//! of another application.

use std::any::type_name;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use crate::create::CreateError;
use task_engine_core::task::{InvalidTask, NewTask};

/// Sees every task before it is created.
///
/// A plain function or closure is one.
///
/// ```
/// use task_engine::{CreationHook, NewTask, Refusal};
///
/// struct OfTenant(u64);
///
/// impl CreationHook for OfTenant {
///     fn creating(&self, task: &mut NewTask) -> Result<(), Refusal> {
///         if task.class == "delete_everything" {
///             return Err(Refusal::because("tenants may not"));
///         }
///         task.add_context("tenant", &self.0)?;
///         task.priority += 1;
///         Ok(())
///     }
/// }
/// ```
pub trait CreationHook: Send + Sync + 'static {
    /// Changes the task, or refuses it: then nothing of the call is created.
    fn creating(&self, task: &mut NewTask) -> Result<(), Refusal>;

    /// Returns its name in messages.
    ///
    /// Default: the name of its type.
    fn name(&self) -> &str {
        type_name::<Self>()
    }
}

impl<F> CreationHook for F
where
    F: Fn(&mut NewTask) -> Result<(), Refusal> + Send + Sync + 'static,
{
    fn creating(&self, task: &mut NewTask) -> Result<(), Refusal> {
        self(task)
    }
}

/// Why a hook refuses a task.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal(String);

impl Refusal {
    /// With this reason, which the creator reads.
    #[must_use]
    pub fn because(why: impl Into<String>) -> Self {
        Self(why.into())
    }
}

impl From<InvalidTask> for Refusal {
    fn from(why: InvalidTask) -> Self {
        Self(why.to_string())
    }
}

/// Hooks, in order. Cheap to clone.
#[derive(Clone, Default)]
pub(crate) struct CreationHooks(Arc<Vec<Arc<dyn CreationHook>>>);

impl fmt::Debug for CreationHooks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.0.iter().map(|hook| hook.name())).finish()
    }
}

impl CreationHooks {
    pub(crate) fn add(&mut self, hook: impl CreationHook) {
        Arc::make_mut(&mut self.0).push(Arc::new(hook));
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Lets every hook see the task, and checks the task after each.
    pub(crate) fn apply(&self, task: &mut NewTask) -> Result<(), CreateError> {
        for hook in self.0.iter() {
            let name = || hook.name().to_owned();
            // A panic of a hook is an error of the creation.
            match catch_unwind(AssertUnwindSafe(|| hook.creating(task))) {
                Ok(Ok(())) => {}
                Ok(Err(Refusal(why))) => {
                    let class = task.class.clone();
                    return Err(CreateError::Refused { class, hook: name(), why });
                }
                Err(panic) => {
                    let why = panic
                        .downcast_ref::<&str>()
                        .map(|text| (*text).to_owned())
                        .or_else(|| panic.downcast_ref::<String>().cloned())
                        .unwrap_or_else(|| "without a message".to_owned());
                    return Err(CreateError::HookPanicked { hook: name(), why });
                }
            }
            task.check().map_err(|why| CreateError::InvalidAfterHook { hook: name(), why })?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
