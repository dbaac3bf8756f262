//! One connection: its announcement, and its engine session.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use serde_json::json;
use task_engine::{RunningEngine, Stopped};
use tokio::io::{AsyncWrite, AsyncWriteExt, BufReader, WriteHalf};
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::{Connection, Shared};
use crate::escape::{escape, summary};
use crate::executables::announcement;
use crate::executables::child::{Frame, ProcessControl};
use crate::executables::config::{self, Executable, ExecutableMode};
use crate::executables::handle_lines;
use crate::executables::lines::{ProcessPool, ProcessSource};
use crate::executables::supervisor::{INPUT, INPUT_ENDS};

/// How long a worker may take to announce itself.
const ANNOUNCEMENT_TIMEOUT: Duration = Duration::from_secs(10);
/// How long it may take to close the connection after the engine did.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);
/// Before a refused connection is closed, so that a program that tries again at once does
/// not guess tokens quickly.
const REFUSAL_PAUSE: Duration = Duration::from_millis(200);
const NAME_BYTES_MAX: usize = 190;
const WRITE_BYTES: usize = 64 * 1024;
/// How much may wait for a worker that does not read.
const QUEUED_BYTES_MAX: usize = 256 * 1024 * 1024;

/// Why a connection was not served.
pub(super) enum ConnectionEnd {
    Refused(String),
}

/// Serves a connection until it is closed, and all of its tasks have ended.
pub(super) async fn serve(
    stream: impl Connection,
    peer: &str,
    needs_token: bool,
    shared: &Shared,
    handshake: CancellationToken,
) -> Result<Stopped, ConnectionEnd> {
    let (lines, mut output) = tokio::io::split(stream);
    let mut lines = BufReader::new(lines);
    let announced = tokio::select! {
        announced = announced(&mut lines, peer, needs_token, shared) => announced,
        () = handshake.cancelled() => Err("it did not announce itself, and others wait".to_owned()),
        () = shared.stop.requested() => Err("the engine stops".to_owned()),
    };
    handshake.cancel();
    let (name, classes) = match announced {
        Ok(announced) => announced,
        Err(why) => {
            refuse(&mut output, &why, shared.stop.is_requested()).await;
            return Err(ConnectionEnd::Refused(why));
        }
    };
    let Ok(_permit) = shared.sessions.clone().try_acquire_owned() else {
        let why = "the engine has as many workers as it takes".to_owned();
        refuse(&mut output, &why, true).await;
        return Err(ConnectionEnd::Refused(why));
    };
    let Some(ExecutableMode::Lines(worker)) = classes.first().map(|class| class.mode.clone())
    else {
        return Err(ConnectionEnd::Refused("it announces no class".to_owned()));
    };
    let slots = u16::try_from(worker.slots()).unwrap_or(u16::MAX);
    let options = classes.iter().map(|one| (one.class.clone(), one.options())).collect();
    let served: Vec<&Executable> = classes.iter().collect();
    let pool = ProcessPool::new(worker, ProcessSource::Connection, &served, Arc::new(options));
    let pool = Arc::new(pool);
    let (control, frames) = ProcessControl::new();
    let closed = CancellationToken::new();
    let connection = tokio::spawn(pool.clone().serve_connection(
        control.clone(),
        lines,
        closed.clone().cancelled_owned(),
    ));
    let names = classes.iter().map(|one| one.class.clone());
    let engine = (shared.engine)().numbered_instance(name).class_workers(names, slots);
    let engine = match handle_lines(engine, &pool, &classes).start().await {
        Ok(engine) => engine,
        Err(error) => {
            closed.cancel();
            let why = format!("its engine session could not start: {error}");
            // The database cannot be reached, or the engine stops.
            refuse(&mut output, &why, true).await;
            return Err(ConnectionEnd::Refused(why));
        }
    };
    let names: Vec<&str> = classes.iter().map(|one| one.class.as_str()).collect();
    let shown = escape(engine.instance()).into_owned();
    tracing::info!(
        "Worker {shown} connected from {peer}: {slots} at a time of {}",
        summary(&names.join(", "), 200)
    );
    tokio::spawn(write_lines(output, connected(engine.instance()), frames, closed.clone()));
    Ok(until_end(engine, &pool, &control, connection, shared, &shown).await)
}

/// Reads and checks the announcement. Its name, its classes.
async fn announced(
    lines: &mut BufReader<impl tokio::io::AsyncRead + Unpin>,
    peer: &str,
    needs_token: bool,
    shared: &Shared,
) -> Result<(String, Vec<Executable>), String> {
    let announcement = match timeout(ANNOUNCEMENT_TIMEOUT, announcement::read(lines)).await {
        Ok(Ok(Some(announcement))) => announcement,
        Ok(Ok(None)) => return Err("it closed the connection before its announcement".to_owned()),
        // Its line may contain a token.
        Ok(Err(_)) if needs_token && shared.token.is_some() => {
            return Err(
                "its first line is not a valid announcement; `task-engine check --worker` says why"
                    .to_owned(),
            );
        }
        Ok(Err(why)) => return Err(why),
        Err(_) => return Err("it did not announce its classes within 10 s".to_owned()),
    };
    if let Some(token) = shared.token.as_ref().filter(|_| needs_token) {
        let given = announcement.token.as_deref().unwrap_or_default();
        if !same(token.as_bytes(), given.as_bytes()) {
            return Err("the token is missing or wrong; set TASK_ENGINE_LISTEN_TOKEN of the worker to that of the engine".to_owned());
        }
    }
    let name = match &announcement.name {
        Some(name)
            if name.is_empty()
                || name.len() > NAME_BYTES_MAX
                || name.chars().any(char::is_control) =>
        {
            return Err(format!(
                "its name is invalid; use 1 to {NAME_BYTES_MAX} bytes without control characters"
            ));
        }
        Some(name) => name.clone(),
        None => peer.rsplit_once(':').map_or(peer, |(host, _)| host).to_owned(),
    };
    let classes = config::connected(&name, &announcement, &shared.options)
        .map_err(|errors| format!("its announcement is invalid: {}", errors.join("; ")))?;
    Ok((name, classes))
}

/// Waits until the worker disconnects or stops, or the engine stops; then until the tasks
/// have ended.
async fn until_end(
    engine: RunningEngine,
    pool: &ProcessPool,
    control: &ProcessControl,
    mut connection: tokio::task::JoinHandle<()>,
    shared: &Shared,
    name: &str,
) -> Stopped {
    tokio::select! {
        _ = &mut connection => {}
        () = pool.stopping() => {}
        () = shared.stop.requested() => {}
    }
    engine.stop();
    let handle = engine.stop_handle();
    let mut ended = std::pin::pin!(engine.join());
    let ended = tokio::select! {
        ended = &mut ended => ended,
        () = shared.stop.requested_now() => {
            handle.stop_now();
            ended.await
        }
    };
    control.end_input();
    if !connection.is_finished() && timeout(CLOSE_TIMEOUT, &mut connection).await.is_err() {
        control.kill();
    }
    ended.unwrap_or_else(|error| {
        tracing::error!("The session of worker {name} ended: {error}");
        Stopped::default()
    })
}

fn connected(name: &str) -> Vec<u8> {
    format!("{}\n", json!({ "connected": name })).into_bytes()
}

/// `again`: the same worker may be accepted later.
async fn refuse(output: &mut (impl AsyncWrite + Unpin), why: &str, again: bool) {
    sleep(REFUSAL_PAUSE).await;
    let refused =
        if again { json!({ "refused": why, "again": true }) } else { json!({ "refused": why }) };
    let line = format!("{refused}\n");
    let refused = async {
        output.write_all(line.as_bytes()).await?;
        output.shutdown().await
    };
    let _: Result<io::Result<()>, _> = timeout(CLOSE_TIMEOUT, refused).await;
}

/// Compares without telling by the time where the difference is.
fn same(one: &[u8], other: &[u8]) -> bool {
    let difference = one.iter().zip(other).fold(0, |sum, (a, b)| sum | (a ^ b));
    one.len() == other.len() && difference == 0
}

/// Writes lines until the connection is to be closed. `closed` is set then, also while the
/// worker does not read.
async fn write_lines(
    mut output: WriteHalf<impl Connection>,
    mut buffer: Vec<u8>,
    mut frames: UnboundedReceiver<Frame>,
    closed: CancellationToken,
) {
    let (lines, mut to_write) = tokio::sync::mpsc::unbounded_channel::<Vec<u8>>();
    let over = closed.clone();
    let queued = Arc::new(AtomicUsize::new(0));
    let unwritten = queued.clone();
    tokio::spawn(async move {
        let mut lines = Some(lines);
        while let Some((kind, data)) = frames.recv().await {
            match kind {
                INPUT => {
                    let before = queued.fetch_add(data.len(), Ordering::Relaxed);
                    if before + data.len() > QUEUED_BYTES_MAX {
                        // It does not read.
                        break;
                    }
                    if let Some(lines) = &lines {
                        let _ = lines.send(data);
                    }
                }
                INPUT_ENDS => lines = None,
                _ => break,
            }
        }
        over.cancel();
    });
    let write = async {
        loop {
            while buffer.len() < WRITE_BYTES {
                let Ok(line) = to_write.try_recv() else { break };
                unwritten.fetch_sub(line.len(), Ordering::Relaxed);
                buffer.extend(line);
            }
            output.write_all(&buffer).await?;
            output.flush().await?;
            buffer.clear();
            match to_write.recv().await {
                Some(line) => {
                    unwritten.fetch_sub(line.len(), Ordering::Relaxed);
                    buffer.extend(line);
                }
                None => break,
            }
        }
        output.shutdown().await
    };
    tokio::select! {
        written = write => if written.is_err() { closed.cancel() },
        () = closed.cancelled() => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_compared_whole() {
        assert!(same(b"abc", b"abc"));
        for (one, other) in [("abc", "abd"), ("abc", "ab"), ("", "a"), ("abc", "")] {
            assert!(!same(one.as_bytes(), other.as_bytes()), "{one} {other}");
        }
    }
}
