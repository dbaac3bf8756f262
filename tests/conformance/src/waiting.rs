//! Waiting for conditions, and concurrent execution. Tests do not sleep for a fixed time.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::Barrier;

/// Generous, for loaded machines. Only a hang takes this long.
pub const TIMEOUT: Duration = Duration::from_secs(60);

/// Polls until there is a value; panics after [`TIMEOUT`].
pub async fn wait_for<T>(what: &str, poll: impl AsyncFnMut() -> Option<T>) -> T {
    within(TIMEOUT, what, poll).await
}

/// The same with a time limit that is part of the promise.
pub async fn within<T>(limit: Duration, what: &str, mut poll: impl AsyncFnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + limit;
    let mut pause = Duration::from_millis(1);
    loop {
        if let Some(value) = poll().await {
            return value;
        }
        assert!(Instant::now() < deadline, "not within {limit:?}: {what}");
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(Duration::from_millis(50));
    }
}

/// Runs two futures concurrently, in a random order.
pub async fn race<A, B>(
    a: impl Future<Output = A> + Send + 'static,
    b: impl Future<Output = B> + Send + 'static,
) -> (A, B)
where
    A: Send + 'static,
    B: Send + 'static,
{
    let start = Arc::new(Barrier::new(2));
    let a = tokio::spawn(start_together(start.clone(), a));
    let b = tokio::spawn(start_together(start, b));
    (joined(a).await, joined(b).await)
}

/// Runs many futures concurrently.
pub async fn run_concurrently<T, F>(futures: impl IntoIterator<Item = F>) -> Vec<T>
where
    F: Future<Output = T> + Send + 'static,
    T: Send + 'static,
{
    let futures: Vec<F> = futures.into_iter().collect();
    let start = Arc::new(Barrier::new(futures.len().max(1)));
    let tasks: Vec<_> = futures
        .into_iter()
        .map(|future| tokio::spawn(start_together(start.clone(), future)))
        .collect();
    let mut results = Vec::new();
    for task in tasks {
        results.push(joined(task).await);
    }
    results
}

/// Polls a future a few times and drops it, like a caller that timed out. `Some` if
/// it was done by then.
pub async fn poll_then_drop<T>(future: impl Future<Output = T>, steps: u32) -> Option<T> {
    let mut future = Box::pin(future);
    for _ in 0..steps {
        if let std::task::Poll::Ready(done) = futures_util::poll!(&mut future) {
            return Some(done);
        }
        // Gives the other side time for a step.
        tokio::time::sleep(Duration::from_micros(200)).await;
    }
    None
}

async fn start_together<T>(start: Arc<Barrier>, future: impl Future<Output = T>) -> T {
    start.wait().await;
    // A random delay, so that either can win. It spins, because timers are too
    // coarse.
    let head_start = Instant::now() + Duration::from_micros(fastrand::u64(0..500));
    while Instant::now() < head_start {
        std::hint::spin_loop();
    }
    future.await
}

/// Resumes a panic with its own message.
async fn joined<T>(task: tokio::task::JoinHandle<T>) -> T {
    match task.await {
        Ok(value) => value,
        Err(error) => std::panic::resume_unwind(error.into_panic()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn wait_for_polls_until_some() {
        let mut looks = 0;
        let seen = wait_for("three looks", async || {
            looks += 1;
            (looks == 3).then_some("here")
        })
        .await;
        assert_eq!((seen, looks), ("here", 3));
    }

    #[tokio::test]
    #[should_panic(expected = "not within 5ms: a miracle")]
    async fn waiting_times_out() {
        within(Duration::from_millis(5), "a miracle", async || None::<()>).await;
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn concurrent_futures_all_start_first() {
        let meeting = Arc::new(Barrier::new(4));
        let guests = (0..4).map(|n| {
            let meeting = meeting.clone();
            async move {
                meeting.wait().await;
                n
            }
        });
        assert_eq!(run_concurrently(guests).await, [0, 1, 2, 3]);
        assert_eq!(run_concurrently(Vec::<std::future::Ready<()>>::new()).await, []);
    }

    #[tokio::test]
    async fn dropped_future_does_not_finish() {
        assert_eq!(poll_then_drop(async { 1 }, 1).await, Some(1));
        assert_eq!(poll_then_drop(std::future::pending::<u8>(), 3).await, None);
    }
}
