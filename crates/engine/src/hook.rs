//! Code around the execution of tasks: see [`Hook`].

use std::borrow::Cow;
use std::fmt;
use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Poll;
use std::time::Duration;

use task_engine_core::json::Json;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::Instrument as _;

use crate::classes::{Class, HandlerFuture};
use crate::context::Context;
use crate::failure::Failure;
use crate::panic::Guarded;

/// Code that runs around every execution of some classes, or of all.
///
/// It can pass values to the handler ([`Context::extensions`]), measure, refuse, and replace the
/// result or the error. Add it with [`Engine::hook`](crate::Engine::hook).
///
/// Hooks are given to the engine with [`Engine::hook`](crate::Engine::hook); the
/// first is the outermost. For each, `before` runs, then `around`, which contains
/// all that is further inside, then `after`. A hook whose `before` fails has no
/// `around` and no `after`, and nothing further inside runs; the hooks outside of
/// it see its failure.
///
/// A hook that panics (`HookPanicked`) or exceeds its own
/// [time limit](Self::time_limit) (`HookTimedOut`) fails the attempt; the error names
/// the hook. The rule of the class decides about a retry.
///
/// An attempt that is dropped (its class's timeout, a cancel request, a forced stop)
/// drops its hooks, too, so `after` may never run. Put what must always happen into
/// a guard inside `around`.
///
/// ```
/// use task_engine::{Failure, Hook, Context};
///
/// struct Tenant(String);
///
/// struct FindTenant;
///
/// impl<S: Send + Sync + 'static> Hook<S> for FindTenant {
///     async fn before(&self, cx: &Context<S>) -> Result<(), Failure> {
///         let Some((tenant, _)) = cx.class().split_once('/') else {
///             return Err(Failure::no_retry("the class names no tenant"));
///         };
///         cx.extensions().insert(Tenant(tenant.to_owned()));
///         Ok(())
///     }
/// }
/// ```
pub trait Hook<S: Send + Sync + 'static>: Send + Sync + 'static {
    /// Returns the name of the hook in errors and logs.
    ///
    /// Default: the name of its type.
    fn name(&self) -> Cow<'static, str> {
        let path = std::any::type_name::<Self>();
        let path = path.split('<').next().unwrap_or(path);
        path.rsplit("::").next().unwrap_or(path).into()
    }

    /// Returns the time limit of each method of the hook; `around` does not count the time of
    /// `next`.
    ///
    /// Code that blocks its thread cannot be stopped by this.
    fn time_limit(&self) -> Duration {
        Duration::from_secs(10)
    }

    /// Runs before the handler.
    ///
    /// An error refuses the attempt.
    fn before(&self, cx: &Context<S>) -> impl Future<Output = Result<(), Failure>> + Send {
        let _ = cx;
        async { Ok(()) }
    }

    /// Runs around the handler and all hooks further inside, which are `next`.
    fn around(
        &self,
        cx: &Context<S>,
        next: Next<'_, S>,
    ) -> impl Future<Output = Result<Json, Failure>> + Send {
        let _ = cx;
        next.run()
    }

    /// Runs after the handler has returned.
    ///
    /// The task ends with the result that this method returns.
    fn after(
        &self,
        cx: &Context<S>,
        outcome: Result<Json, Failure>,
    ) -> impl Future<Output = Result<Json, Failure>> + Send {
        let _ = cx;
        async { outcome }
    }
}

type HookFuture<'a, T> = Pin<Box<dyn Future<Output = Result<T, Failure>> + Send + 'a>>;

/// A [`Hook`] as a trait object.
trait DynHook<S>: Send + Sync {
    fn name(&self) -> Cow<'static, str>;
    fn time_limit(&self) -> Duration;
    fn before<'a>(&'a self, cx: &'a Context<S>) -> HookFuture<'a, ()>;
    fn around<'a>(&'a self, cx: &'a Context<S>, next: Next<'a, S>) -> HookFuture<'a, Json>;
    fn after<'a>(
        &'a self,
        cx: &'a Context<S>,
        outcome: Result<Json, Failure>,
    ) -> HookFuture<'a, Json>;
}

impl<S: Send + Sync + 'static, H: Hook<S>> DynHook<S> for H {
    fn name(&self) -> Cow<'static, str> {
        Hook::name(self)
    }

    fn time_limit(&self) -> Duration {
        Hook::time_limit(self)
    }

    fn before<'a>(&'a self, cx: &'a Context<S>) -> HookFuture<'a, ()> {
        Box::pin(async move { Hook::before(self, cx).await })
    }

    fn around<'a>(&'a self, cx: &'a Context<S>, next: Next<'a, S>) -> HookFuture<'a, Json> {
        Box::pin(async move { Hook::around(self, cx, next).await })
    }

    fn after<'a>(
        &'a self,
        cx: &'a Context<S>,
        outcome: Result<Json, Failure>,
    ) -> HookFuture<'a, Json> {
        Box::pin(async move { Hook::after(self, cx, outcome).await })
    }
}

/// A hook, and the classes that it is for.
pub(crate) struct RegisteredHook<S> {
    hook: Arc<dyn DynHook<S>>,
    /// `None`: all classes.
    classes: Option<Vec<String>>,
}

impl<S: Send + Sync + 'static> RegisteredHook<S> {
    pub(crate) fn new(hook: impl Hook<S>, classes: Option<Vec<String>>) -> Self {
        Self { hook: Arc::new(hook), classes }
    }

    pub(crate) fn is_for(&self, class: &str) -> bool {
        self.classes.as_ref().is_none_or(|classes| classes.iter().any(|one| one == class))
    }

    /// A class that it is for, and that has no handler.
    pub(crate) fn unknown_class(&self, known: impl Fn(&str) -> bool) -> Option<&str> {
        self.classes.iter().flatten().map(String::as_str).find(|class| !known(class))
    }

    pub(crate) fn name(&self) -> Cow<'static, str> {
        self.hook.name()
    }
}

/// The hooks of one class, outermost first.
pub(crate) struct ClassHooks<S>(Vec<Arc<dyn DynHook<S>>>);

impl<S> Default for ClassHooks<S> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<S: Send + Sync + 'static> ClassHooks<S> {
    pub(crate) fn of(class: &str, registered: &[RegisteredHook<S>]) -> Self {
        let hooks = registered.iter().filter(|one| one.is_for(class));
        Self(hooks.map(|one| one.hook.clone()).collect())
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// Calls the handler of a class inside its hooks.
pub(crate) fn call_with_hooks<S: Send + Sync + 'static>(
    class: Arc<Class<S>>,
    parameters: Json,
    cx: Context<S>,
) -> HandlerFuture {
    Box::pin(async move {
        let call =
            HandlerCall { class, parameters, cx: cx.clone(), thread_ended: Mutex::default() };
        let hooks = call.class.hooks.0.as_slice();
        let outcome = Next { hooks, cx: &cx, call: &call, own_time: None }.run().await;
        call.wait_for_thread().await;
        outcome
    })
}

/// The rest of an execution, as a hook sees it: the hooks that come after it, then the handler.
pub struct Next<'a, S> {
    hooks: &'a [Arc<dyn DynHook<S>>],
    cx: &'a Context<S>,
    call: &'a HandlerCall<S>,
    /// The clock of the hook that this is inside of.
    own_time: Option<&'a OwnTime>,
}

impl<S> fmt::Debug for Next<'_, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Next").field("hooks", &self.hooks.len()).finish_non_exhaustive()
    }
}

impl<'a, S: Send + Sync + 'static> Next<'a, S> {
    /// Runs the hooks that come after this one, then the handler, and returns the result.
    ///
    /// A hook that does not call this refuses the attempt with an error, or returns a result in
    /// place of the handler.
    pub fn run(self) -> impl Future<Output = Result<Json, Failure>> + Send + 'a {
        // Boxed, because hooks contain hooks.
        let inside: HookFuture<'a, Json> = match self.hooks.split_first() {
            None => Box::pin(self.call.run()),
            Some((hook, further)) => Box::pin(layer(&**hook, further, self.cx, self.call)),
        };
        async move {
            let _not_the_hooks_own = self.own_time.map(OwnTime::pause);
            inside.await
        }
    }
}

/// One hook, and what is inside of it.
async fn layer<S: Send + Sync + 'static>(
    hook: &dyn DynHook<S>,
    hooks: &[Arc<dyn DynHook<S>>],
    cx: &Context<S>,
    call: &HandlerCall<S>,
) -> Result<Json, Failure> {
    let own_time = OwnTime::new();
    match guarded(hook, "before", &own_time, hook.before(cx)).await {
        Ok(fine) => fine?,
        Err(fault) => return Err(fault),
    }
    let own_time = OwnTime::new();
    let next = Next { hooks, cx, call, own_time: Some(&own_time) };
    // The `after` of a hook whose `around` broke does not run.
    let outcome = guarded(hook, "around", &own_time, hook.around(cx, next)).await?;
    guarded(hook, "after", &OwnTime::new(), hook.after(cx, outcome)).await?
}

/// A longer limit means: without a limit.
const TIME_LIMIT_MAX: Duration = Duration::from_secs(10 * 366 * 86_400);

/// Runs one step of a hook within its limits. `Err` means that the hook broke.
async fn guarded<S, T>(
    hook: &dyn DynHook<S>,
    step: &str,
    own_time: &OwnTime,
    future: HookFuture<'_, T>,
) -> Result<Result<T, Failure>, Failure> {
    let limit = hook.time_limit().min(TIME_LIMIT_MAX);
    let mut future = Guarded::new(future);
    let mut timer = pin!(tokio::time::sleep(limit));
    let ended = std::future::poll_fn(|cx| {
        if let Poll::Ready(ended) = Pin::new(&mut future).poll(cx) {
            return Poll::Ready(Some(ended));
        }
        // While the inside runs, it wakes this future: it is polled through it.
        let Some(spent) = own_time.spent() else {
            return Poll::Pending;
        };
        // The time decides, not the timer, which is never exact.
        let left = limit.saturating_sub(spent);
        if left.is_zero() {
            return Poll::Ready(None);
        }
        timer.as_mut().reset(Instant::now() + left);
        timer.as_mut().poll(cx).map(|()| None)
    });
    let name = hook.name();
    match ended.await {
        Some(Ok(outcome)) => Ok(outcome),
        Some(Err(panicked)) => {
            Err(panicked.into_failure_of("HookPanicked", &format!("hook {name} in `{step}`")))
        }
        None => Err(Failure::named(
            "HookTimedOut",
            format!("hook {name}: `{step}` was not finished after {limit:?}"),
        )),
    }
}

/// How long a hook has run, without what is inside of it.
struct OwnTime(Mutex<(Duration, Option<Instant>)>);

impl OwnTime {
    fn new() -> Self {
        Self(Mutex::new((Duration::ZERO, Some(Instant::now()))))
    }

    /// `None` while what is inside runs.
    fn spent(&self) -> Option<Duration> {
        let (before, since) = *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        since.map(|since| before + since.elapsed())
    }

    fn pause(&self) -> Paused<'_> {
        let mut time = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(since) = time.1.take() {
            time.0 += since.elapsed();
        }
        Paused(self)
    }
}

struct Paused<'a>(&'a OwnTime);

impl Drop for Paused<'_> {
    fn drop(&mut self) {
        let mut time = self.0.0.lock().unwrap_or_else(PoisonError::into_inner);
        time.1 = Some(Instant::now());
    }
}

/// One call of a handler.
struct HandlerCall<S> {
    class: Arc<Class<S>>,
    parameters: Json,
    cx: Context<S>,
    /// Cancelled when the thread of a blocking handler ends; `None` without one.
    thread_ended: Mutex<Option<CancellationToken>>,
}

impl<S: Send + Sync + 'static> HandlerCall<S> {
    async fn run(&self) -> Result<Json, Failure> {
        let (class, parameters) = (self.class.clone(), self.parameters.clone());
        let cx = self.cx.clone();
        let handler = Guarded::new(Box::pin(async move { class.call(&parameters, cx).await }));
        if !self.class.blocking {
            return handler.await.unwrap_or_else(|panicked| Err(panicked.into_failure()));
        }
        // A thread cannot be dropped. A task that no hook can drop awaits it.
        let ended = CancellationToken::new();
        *self.thread_ended.lock().unwrap_or_else(PoisonError::into_inner) = Some(ended.clone());
        let (send, receive) = tokio::sync::oneshot::channel();
        let waiting = async move {
            let _ended = ended.drop_guard();
            // The receiver is gone if a hook gave up waiting.
            let _ = send.send(handler.await);
        };
        tokio::spawn(waiting.in_current_span());
        match receive.await {
            Ok(Ok(outcome)) => outcome,
            Ok(Err(panicked)) => Err(panicked.into_failure()),
            Err(gone) => Err(Failure::panic(gone.to_string(), Vec::new())),
        }
    }

    /// Waits for the thread of a blocking handler that a hook no longer awaits, so
    /// that no other attempt runs at the same time.
    async fn wait_for_thread(&self) {
        let ended = self.thread_ended.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(ended) = ended.filter(|ended| !ended.is_cancelled()) {
            self.cx.cancelled.cancel();
            ended.cancelled().await;
        }
    }
}
