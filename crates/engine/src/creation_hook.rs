//! Hooks on creation: what an application wants of every task that it creates.
//!
//! A hook sees each task before it goes to the store, from whichever of
//! [`Client`](crate::client::Client)'s doors it comes, in the order in which the hooks
//! were given. It may add to the context, set queue or priority, make the task
//! unique, or refuse it. It runs in the creator, and must not block. Tasks of
//! schedules, and those that are created in SQL, pass no hooks: any engine fires
//! a slot, also one of another application.

use std::any::type_name;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use crate::client::CreateError;
use task_engine_core::task::{InvalidTask, NewTask};

/// Sees every task before it is created. A plain function or closure is one.
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

    /// What messages call it. Default: the name of its type.
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

/// Why a hook does not want a task.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal(String);

impl Refusal {
    /// With these words, which the creator gets to read.
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
pub(crate) struct Hooks(Arc<Vec<Arc<dyn CreationHook>>>);

impl fmt::Debug for Hooks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.0.iter().map(|hook| hook.name())).finish()
    }
}

impl Hooks {
    pub(crate) fn add(&mut self, hook: impl CreationHook) {
        Arc::make_mut(&mut self.0).push(Arc::new(hook));
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Lets every hook see the task. What they make of it is checked, because
    /// they may write its fields.
    pub(crate) fn apply(&self, task: &mut NewTask) -> Result<(), CreateError> {
        for hook in self.0.iter() {
            let name = || hook.name().to_owned();
            // A panic is the fault of the hook, and the creator's to deal with.
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
mod tests {
    use super::*;
    use task_engine_core::json::Json;

    fn task() -> NewTask {
        NewTask::new("a", Json::empty_object()).unwrap()
    }

    fn hooks(hook: impl CreationHook) -> Hooks {
        let mut hooks = Hooks::default();
        hooks.add(hook);
        hooks
    }

    #[test]
    fn hooks_see_what_those_before_them_did() {
        let mut hooks = hooks(|task: &mut NewTask| Ok(task.add_context("first", &1)?));
        hooks.add(|task: &mut NewTask| {
            let seen = task.context.clone();
            task.queue = "slow".into();
            Ok(task.add_context("second", &seen)?)
        });
        let mut new = task();
        hooks.apply(&mut new).unwrap();
        assert_eq!(new.context.as_str(), r#"{"first":1,"second":{"first":1}}"#);
        assert_eq!(new.queue, "slow");
    }

    #[test]
    fn a_refusal_has_its_words_and_stops_the_rest() {
        let mut hooks = hooks(|_: &mut NewTask| Err(Refusal::because("not on Sundays")));
        hooks.add(|_: &mut NewTask| panic!("is never asked"));
        let error = hooks.apply(&mut task()).unwrap_err().to_string();
        assert!(error.contains("a task of class a") && error.contains("not on Sundays"), "{error}");
    }

    #[test]
    fn a_panic_is_an_error_that_names_the_hook() {
        struct Rash;
        impl CreationHook for Rash {
            fn creating(&self, _: &mut NewTask) -> Result<(), Refusal> {
                panic!("out of {}", "luck")
            }
        }
        let error = hooks(Rash).apply(&mut task()).unwrap_err().to_string();
        assert!(error.contains("Rash") && error.contains("out of luck"), "{error}");
    }

    #[test]
    fn what_a_hook_spoils_is_not_created() {
        let spoil = |change: fn(&mut NewTask)| {
            let hook = move |task: &mut NewTask| {
                change(task);
                Ok(())
            };
            hooks(hook).apply(&mut task()).unwrap_err().to_string()
        };
        let error = spoil(|task| task.queue.clear());
        assert!(error.contains("hook") && error.contains("a queue needs a name"), "{error}");
        let error = spoil(|task| task.context = Json::null());
        assert!(error.contains("context of a"), "{error}");
        let error = spoil(|task| task.unique = Some(task_engine_core::unique::Unique::by("")));
        assert!(error.contains("1 to 500 bytes"), "{error}");
    }
}
