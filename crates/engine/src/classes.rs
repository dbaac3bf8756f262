//! The classes of an engine, each with its handler.

use std::collections::BTreeMap;
use std::fmt;
use std::future::Future;
use std::panic::Location;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use serde::de::DeserializeOwned;
use task_engine_core::attempt::TaskError;
use task_engine_core::json::Json;
use task_engine_core::schema::{self, InvalidSchema, Schema};
use task_engine_core::task::{Task, TaskOptions};

use crate::context::Context;
use crate::durable::run_until_exit;
use crate::failure::Failure;
use crate::handler::{BlockingHandler, Handler};
use crate::hook::{ClassHooks, RegisteredHook};
use crate::rollup::ClassNumber;

type HandlerFn<S> = Box<dyn Fn(&Json, Context<S>) -> HandlerFuture + Send + Sync>;
pub(crate) type HandlerFuture = Pin<Box<dyn Future<Output = Result<Json, Failure>> + Send>>;

/// A retry rule that is a function of the retry number and the error: see
/// [`Engine::retry_with`](crate::Engine::retry_with).
pub(crate) type RetryFunction = Arc<dyn Fn(u32, &TaskError) -> Option<Duration> + Send + Sync>;

/// A class with its handler.
pub(crate) struct Class<S> {
    pub(crate) name: Arc<str>,
    /// Its number among the classes of the engine.
    pub(crate) number: ClassNumber,
    pub(crate) options: TaskOptions,
    pub(crate) retry: Option<RetryFunction>,
    /// Runs on its own thread, and cannot be dropped.
    pub(crate) blocking: bool,
    pub(crate) hooks: ClassHooks<S>,
    handler: HandlerFn<S>,
    place: &'static Location<'static>,
}

impl<S> Class<S> {
    pub(crate) fn call(&self, parameters: &Json, cx: Context<S>) -> HandlerFuture {
        (self.handler)(parameters, cx)
    }

    pub(crate) fn timeout(&self) -> Option<Duration> {
        self.options.timeout
    }
}

/// All classes of an engine.
pub(crate) struct Classes<S> {
    known: BTreeMap<String, Arc<Class<S>>>,
    /// The first class with two handlers, and the places of both.
    pub(crate) duplicate: Option<(String, String, String)>,
}

impl<S> fmt::Debug for Classes<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.known.keys()).finish()
    }
}

impl<S: Send + Sync + 'static> Classes<S> {
    pub(crate) fn new() -> Self {
        Self { known: BTreeMap::new(), duplicate: None }
    }

    pub(crate) fn get(&self, class: &str) -> Option<&Arc<Class<S>>> {
        self.known.get(class)
    }

    pub(crate) fn names(&self) -> Vec<String> {
        self.known.keys().cloned().collect()
    }

    pub(crate) fn options(&self) -> BTreeMap<String, TaskOptions> {
        self.known.iter().map(|(name, class)| (name.clone(), class.options.clone())).collect()
    }

    /// Sets the schemas of classes.
    pub(crate) fn publish(&mut self, schemas: &[(String, Schema)]) {
        for (name, schema) in schemas {
            // There is no other reference yet.
            if let Some(class) = self.known.get_mut(name).and_then(Arc::get_mut) {
                class.options.schema = Some(schema.clone());
            }
        }
    }

    /// Removes the schemas that cannot be published, and returns the reasons by class.
    pub(crate) fn remove_invalid_schemas(&mut self) -> Vec<(String, InvalidSchema)> {
        let removed = schema::remove_invalid(&mut self.options());
        for (name, _) in &removed {
            // There is no other reference yet.
            if let Some(class) = self.known.get_mut(name).and_then(Arc::get_mut) {
                class.options.schema = None;
            }
        }
        removed
    }

    /// Sets the retry functions of classes.
    pub(crate) fn retry(&mut self, rules: &[(String, RetryFunction)]) {
        for (name, rule) in rules {
            // There is no other reference yet.
            if let Some(class) = self.known.get_mut(name).and_then(Arc::get_mut) {
                class.retry = Some(rule.clone());
            }
        }
    }

    /// Sets the hooks of each class, in their order.
    pub(crate) fn hook(&mut self, registered: &[RegisteredHook<S>]) {
        for (name, class) in &mut self.known {
            // There is no other reference yet.
            if let Some(class) = Arc::get_mut(class) {
                class.hooks = ClassHooks::of(name, registered);
            }
        }
    }

    /// Their names, by number.
    pub(crate) fn by_number(&self) -> Vec<Arc<str>> {
        let mut classes: Vec<_> = self.known.values().collect();
        classes.sort_by_key(|class| class.number);
        classes.into_iter().map(|class| class.name.clone()).collect()
    }

    fn add(&mut self, mut class: Class<S>) {
        class.number = self.known.len();
        let name = class.name.to_string();
        let place = class.place;
        if let Some(first) = self.known.insert(name.clone(), Arc::new(class)) {
            self.duplicate.get_or_insert((name, first.place.to_string(), place.to_string()));
        }
    }

    /// Adds an asynchronous handler.
    pub(crate) fn add_async<P, A>(&mut self, class: NewClass, handler: impl Handler<P, S, A>)
    where
        P: DeserializeOwned + Send + 'static,
        A: 'static,
    {
        let handler = Arc::new(handler);
        let name: Arc<str> = class.name.as_str().into();
        let class_name = name.clone();
        let work = move |parameters: &Json, cx: Context<S>| -> HandlerFuture {
            let decoded = decode::<P>(&class_name, parameters);
            let handler = handler.clone();
            Box::pin(async move {
                let attempt = cx.handle.clone();
                run_until_exit(&attempt, handler.call(decoded?, cx)).await
            })
        };
        self.add(class.with(name, false, Box::new(work)));
    }

    /// Adds a handler that blocks: each call gets its own thread.
    pub(crate) fn add_blocking<P, A>(
        &mut self,
        class: NewClass,
        handler: impl BlockingHandler<P, S, A>,
    ) where
        P: DeserializeOwned + Send + 'static,
        A: 'static,
    {
        let handler = Arc::new(handler);
        let name: Arc<str> = class.name.as_str().into();
        let class_name = name.clone();
        let work = move |parameters: &Json, cx: Context<S>| -> HandlerFuture {
            let decoded = decode::<P>(&class_name, parameters);
            let handler = handler.clone();
            Box::pin(async move {
                let parameters = decoded?;
                let attempt = cx.handle.clone();
                let (done, result) = tokio::sync::oneshot::channel();
                let span = tracing::Span::current();
                // Not a thread of the runtime, whose shutdown would wait for it.
                std::thread::Builder::new().name(format!("task {}", cx.task_id())).spawn(
                    move || {
                        let _inside = span.enter();
                        let result = crate::panic::guarded(|| handler.call(parameters, cx));
                        // The receiver is gone if the engine was forced to stop.
                        let _ = done.send(result);
                    },
                )?;
                let result = result.await;
                // A durable call has unwound the thread.
                if let Some(end) = attempt.exit.take() {
                    return Err(end);
                }
                match result {
                    Ok(Ok(result)) => result,
                    Ok(Err(panic)) => Err(panic.into_failure()),
                    Err(gone) => Err(Failure::panic(gone.to_string(), Vec::new())),
                }
            })
        };
        self.add(class.with(name, true, Box::new(work)));
    }
}

/// The name and options of a class, before it gets its handler.
pub(crate) struct NewClass {
    pub(crate) name: String,
    pub(crate) options: TaskOptions,
    pub(crate) place: &'static Location<'static>,
}

impl NewClass {
    pub(crate) fn of<T: Task>(place: &'static Location<'static>) -> Self {
        Self { name: T::CLASS.to_owned(), options: TaskOptions::of::<T>(), place }
    }

    fn with<S>(self, name: Arc<str>, blocking: bool, handler: HandlerFn<S>) -> Class<S> {
        Class {
            name,
            number: 0,
            options: self.options,
            retry: None,
            blocking,
            hooks: ClassHooks::default(),
            handler,
            place: self.place,
        }
    }
}

/// The parameters as the handler's type, or a failure that names the field.
fn decode<P: DeserializeOwned>(class: &str, parameters: &Json) -> Result<P, Failure> {
    parameters.decode().or_else(|error| {
        // `{}` is how the parameters of a type without fields are stored.
        if parameters.as_str() == "{}"
            && let Ok(unit) = Json::null().decode()
        {
            return Ok(unit);
        }
        Err(Failure::named(
            "ParametersNotDecodable",
            format!("the parameters do not fit class {class}: {error}"),
        ))
    })
}
