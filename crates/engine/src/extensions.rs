//! Values that hooks add to an execution, by type.

use std::any::{Any, TypeId, type_name};
use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Values that hooks leave for the handler, one of each type. Clones share them.
#[derive(Clone, Default)]
pub struct Extensions(Arc<Mutex<Values>>);

type Values = HashMap<TypeId, (&'static str, Arc<dyn Any + Send + Sync>)>;

impl Extensions {
    /// Adds a value, and replaces one of the same type.
    pub fn insert<T: Send + Sync + 'static>(&self, value: T) {
        self.values().insert(TypeId::of::<T>(), (type_name::<T>(), Arc::new(value)));
    }

    /// The value of this type, if there is one.
    #[must_use]
    pub fn get<T: Send + Sync + 'static>(&self) -> Option<Arc<T>> {
        let (_, value) = self.values().get(&TypeId::of::<T>())?.clone();
        value.downcast().ok()
    }

    fn values(&self) -> MutexGuard<'_, Values> {
        // Each change is one step, so a panic leaves it consistent.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Extensions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.values().values().map(|(name, _)| name)).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn value_is_found_by_type() {
        struct Tenant(u32);
        let extensions = Extensions::default();
        assert!(extensions.get::<Tenant>().is_none());
        extensions.clone().insert(Tenant(1));
        extensions.insert(7_u8);
        extensions.insert(Tenant(2));
        assert_eq!(extensions.get::<Tenant>().unwrap().0, 2);
        assert_eq!(*extensions.get::<u8>().unwrap(), 7);
        assert!(format!("{extensions:?}").contains("Tenant"));
    }
}
