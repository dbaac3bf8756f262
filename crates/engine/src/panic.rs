//! Converts panics of tasks into failures, with message, place and backtrace.
//!
//! Only the panic hook knows the place and the backtrace of a panic, so one is
//! installed, once. It keeps them for panics inside a task, and calls the previous
//! hook for all panics, so that a reporter of the application sees them, too.

use std::any::Any;
use std::backtrace::Backtrace;
use std::cell::{Cell, RefCell};
use std::fmt;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Once;
use std::task::{Context, Poll};

use crate::failure::{Failure, frames};

thread_local! {
    static INSIDE_A_TASK: Cell<bool> = const { Cell::new(false) };
    static LAST: RefCell<Option<(String, Backtrace)>> = const { RefCell::new(None) };
}

/// A panic that was caught.
pub(crate) struct CaughtPanic {
    message: String,
    backtrace: Vec<String>,
}

impl fmt::Display for CaughtPanic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let place = self.backtrace.first().map_or("?", String::as_str);
        write!(f, "a bug of Task Engine, at {place}: {}", self.message)
    }
}

impl CaughtPanic {
    pub(crate) fn into_failure(self) -> Failure {
        Failure::panic(self.message, self.backtrace)
    }

    /// The same, for a panic of a hook.
    pub(crate) fn into_failure_of(self, exception: &str, who: &str) -> Failure {
        Failure::with_backtrace_lines(exception, format!("{who}: {}", self.message), self.backtrace)
    }

    fn caught(payload: &(dyn Any + Send)) -> Self {
        let message = payload
            .downcast_ref::<&str>()
            .map(|text| (*text).to_owned())
            .or_else(|| payload.downcast_ref::<String>().cloned())
            .unwrap_or_else(|| "a panic without a message".to_owned());
        let mut backtrace = Vec::new();
        if let Some((place, captured)) = LAST.take() {
            backtrace.push(place);
            backtrace.extend(frames(&captured));
        }
        Self { message, backtrace }
    }
}

/// Runs blocking code of a task.
pub(crate) fn guarded<T>(code: impl FnOnce() -> T) -> Result<T, CaughtPanic> {
    install_hook();
    let outside = INSIDE_A_TASK.replace(true);
    let result = catch_unwind(AssertUnwindSafe(code));
    INSIDE_A_TASK.set(outside);
    result.map_err(|payload| CaughtPanic::caught(&*payload))
}

/// Polls asynchronous code of a task.
pub(crate) struct Guarded<F: ?Sized>(Pin<Box<F>>);

impl<F: Future + ?Sized> Guarded<F> {
    pub(crate) fn new(future: Pin<Box<F>>) -> Self {
        Self(future)
    }
}

impl<F: Future + ?Sized> Future for Guarded<F> {
    type Output = Result<F::Output, CaughtPanic>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let future = self.0.as_mut();
        match guarded(|| future.poll(cx)) {
            Ok(Poll::Pending) => Poll::Pending,
            Ok(Poll::Ready(value)) => Poll::Ready(Ok(value)),
            Err(panicked) => Poll::Ready(Err(panicked)),
        }
    }
}

fn install_hook() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let previous = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            if INSIDE_A_TASK.get() {
                let place = info.location().map(ToString::to_string).unwrap_or_default();
                LAST.set(Some((place, Backtrace::force_capture())));
            }
            previous(info);
        }));
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn panic_keeps_message_and_place() {
        let panicked = guarded(|| -> () { panic!("number {}", 7) }).unwrap_err();
        assert_eq!(panicked.message, "number 7");
        assert!(panicked.backtrace[0].contains("panic.rs:"), "{:?}", panicked.backtrace);
    }

    #[test]
    fn panic_without_text_is_caught() {
        let panicked = guarded(|| -> () { std::panic::panic_any(7) }).unwrap_err();
        assert_eq!(panicked.message, "a panic without a message");
    }
}
