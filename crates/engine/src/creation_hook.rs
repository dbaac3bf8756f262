//! Hooks that see each task before it is created.
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

/// A hook that sees every task before it is created, and can change or refuse it.
///
/// Add it with [`TaskEngine::creation_hook`](crate::TaskEngine::creation_hook). A function or
/// closure with the signature of [`creating`](Self::creating) is a hook, too.
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
    /// Changes the task, or refuses it.
    ///
    /// # Errors
    /// If it returns a [`Refusal`], none of the tasks of the call is created.
    fn creating(&self, task: &mut NewTask) -> Result<(), Refusal>;

    /// Returns the name of the hook in messages.
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

/// The reason why a hook refuses a task.
///
/// ```
/// use task_engine::{NewTask, Refusal};
///
/// fn only_small(task: &mut NewTask) -> Result<(), Refusal> {
///     match task.parameters.as_str().len() {
///         0..=10_000 => Ok(()),
///         bytes => Err(Refusal::because(format!("{bytes} bytes of parameters"))),
///     }
/// }
/// # fn example(tasks: task_engine::TaskEngine) -> task_engine::TaskEngine {
/// # tasks.creation_hook(only_small)
/// # }
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal(String);

impl Refusal {
    /// Creates a refusal with this reason, which the creator of the task reads.
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
