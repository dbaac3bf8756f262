//! Waiting for what must happen, and making things happen at once. Nothing
//! here sleeps in the hope that something has happened meanwhile.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::Barrier;

/// What must happen has happened by then, on the slowest machine.
pub const DEADLINE: Duration = Duration::from_secs(20);

/// Looks until there is something to see, or panics at the deadline.
pub async fn eventually<T>(what: &str, look: impl AsyncFnMut() -> Option<T>) -> T {
    within(DEADLINE, what, look).await
}

/// The same with a deadline that is part of the promise.
pub async fn within<T>(limit: Duration, what: &str, mut look: impl AsyncFnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + limit;
    let mut pause = Duration::from_millis(1);
    loop {
        if let Some(seen) = look().await {
            return seen;
        }
        assert!(Instant::now() < deadline, "not seen within {limit:?}: {what}");
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(Duration::from_millis(50));
    }
}

/// Runs two things at the same time, each on a thread of its own where the
/// runtime has two, with a little chance in who is first.
pub async fn at_once<A, B>(
    a: impl Future<Output = A> + Send + 'static,
    b: impl Future<Output = B> + Send + 'static,
) -> (A, B)
where
    A: Send + 'static,
    B: Send + 'static,
{
    let start = Arc::new(Barrier::new(2));
    let a = tokio::spawn(begin(start.clone(), a));
    let b = tokio::spawn(begin(start, b));
    (joined(a).await, joined(b).await)
}

/// Runs many things of one kind at the same time.
pub async fn all_at_once<T, F>(futures: impl IntoIterator<Item = F>) -> Vec<T>
where
    F: Future<Output = T> + Send + 'static,
    T: Send + 'static,
{
    let futures: Vec<F> = futures.into_iter().collect();
    let start = Arc::new(Barrier::new(futures.len().max(1)));
    let tasks: Vec<_> =
        futures.into_iter().map(|future| tokio::spawn(begin(start.clone(), future))).collect();
    let mut results = Vec::new();
    for task in tasks {
        results.push(joined(task).await);
    }
    results
}

/// Begins something and walks away after a few steps, as a caller does whose
/// connection or timeout is gone. `Some` if it was done by then.
pub async fn abandoned<T>(future: impl Future<Output = T>, steps: u32) -> Option<T> {
    let mut future = Box::pin(future);
    for _ in 0..steps {
        if let std::task::Poll::Ready(done) = futures_util::poll!(&mut future) {
            return Some(done);
        }
        // Gives the other side the time of one step, whatever that is.
        tokio::time::sleep(Duration::from_micros(200)).await;
    }
    None
}

async fn begin<T>(start: Arc<Barrier>, future: impl Future<Output = T>) -> T {
    start.wait().await;
    // A fair start is always won by the shorter road. The head start is spun
    // away, because timers are coarser than what it is about.
    let head_start = Instant::now() + Duration::from_micros(fastrand::u64(0..500));
    while Instant::now() < head_start {
        std::hint::spin_loop();
    }
    future.await
}

/// Passes a panic on, so that its message is the one that is read.
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
    async fn eventually_looks_until_it_sees() {
        let mut looks = 0;
        let seen = eventually("three looks", async || {
            looks += 1;
            (looks == 3).then_some("here")
        })
        .await;
        assert_eq!((seen, looks), ("here", 3));
    }

    #[tokio::test]
    #[should_panic(expected = "not seen within 5ms: a miracle")]
    async fn waiting_has_an_end_and_says_for_what() {
        within(Duration::from_millis(5), "a miracle", async || None::<()>).await;
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn all_begin_before_any_ends() {
        let meeting = Arc::new(Barrier::new(4));
        let guests = (0..4).map(|n| {
            let meeting = meeting.clone();
            async move {
                meeting.wait().await;
                n
            }
        });
        assert_eq!(all_at_once(guests).await, [0, 1, 2, 3]);
        assert_eq!(all_at_once(Vec::<std::future::Ready<()>>::new()).await, []);
    }

    #[tokio::test]
    async fn an_abandoned_future_is_dropped_half_way() {
        assert_eq!(abandoned(async { 1 }, 1).await, Some(1));
        assert_eq!(abandoned(std::future::pending::<u8>(), 3).await, None);
    }
}
