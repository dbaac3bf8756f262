//! How an attempt ends from inside a durable call, without returning to the handler.
//!
//! A suspension must not look like an error to the handler: code that handles errors would
//! compensate for a task that only sleeps. So the call never returns. The future of an
//! asynchronous handler is dropped; the thread of a blocking handler is unwound.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::task::Poll;

use crate::attempt_handle::AttemptHandle;
use crate::failure::Failure;

/// The end that a durable call has requested, if one has.
#[derive(Debug, Default)]
pub(crate) struct AttemptExit {
    /// Read after every poll of the handler.
    requested: AtomicBool,
    end: Mutex<Option<Failure>>,
}

impl AttemptExit {
    /// Requests the end. The first request counts.
    pub(crate) fn request(&self, end: Failure) {
        let mut stored = self.end.lock().unwrap_or_else(PoisonError::into_inner);
        if !self.requested.swap(true, Ordering::AcqRel) {
            *stored = Some(end);
        }
    }

    pub(crate) fn is_requested(&self) -> bool {
        self.requested.load(Ordering::Acquire)
    }

    pub(crate) fn take(&self) -> Option<Failure> {
        if !self.is_requested() {
            return None;
        }
        self.end.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// Runs a handler until it returns or a durable call ends its attempt.
pub(crate) async fn run_until_exit<T>(
    attempt: &AttemptHandle,
    handler: impl Future<Output = Result<T, Failure>>,
) -> Result<T, Failure> {
    let mut handler = pin!(handler);
    poll_fn(|cx| {
        let polled = handler.as_mut().poll(cx);
        match attempt.exit.take() {
            Some(end) => Poll::Ready(Err(end)),
            None => polled,
        }
    })
    .await
}

/// The payload of the panic that unwinds the thread of a blocking handler.
pub(crate) struct UnwindForExit;
