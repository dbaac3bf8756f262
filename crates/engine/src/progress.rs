//! Progress and log lines of running attempts.
//!
//! A handler pushes them into its [`AttemptReporter`] without waiting. One
//! [`ReportWriter`] for the whole engine writes what is new in batches, at most twice
//! a second. The recorder flushes an attempt's report before the end of the attempt,
//! so that the log of an ended attempt is complete. A report is kept until the store
//! has confirmed it, and sent again if necessary; the key of each line makes that
//! idempotent. All buffers are bounded; what does not fit is dropped and counted.
//! Results never depend on reports.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use task_engine_core::attempt::{AttemptId, AttemptRecord};
use task_engine_core::progress::{
    LINES_MAX, LOG_BYTES_MAX, LogLevel, LogLine, ProgressReport, Report,
};
use task_engine_core::secret::Redactor;
use task_engine_store::contract::Store;
use task_engine_store::error::StoreError;
use tokio::sync::Notify;

use crate::backoff::Backoff;
use crate::running::lock;

/// How often new reports are written.
const EVERY: Duration = Duration::from_millis(500);
/// How long an ending waits for its log, so that a hanging store delays results only
/// briefly.
const ENDING_TIMEOUT: Duration = Duration::from_secs(2);
/// How much an engine keeps that is not written, of all attempts together.
const UNWRITTEN_BYTES_MAX: usize = 32 * 1024 * 1024;
/// How many attempts it keeps reports of: running ones, and ended ones whose reports
/// could not be written.
const UNWRITTEN_ATTEMPTS_MAX: usize = 20_000;
/// The memory of a line besides its text.
const LINE_OVERHEAD_BYTES: usize = 100;
/// Limits of one statement.
const BATCH_ATTEMPTS_MAX: usize = 200;
const BATCH_LINES_MAX: usize = 2000;
const BATCH_BYTES_MAX: usize = 4 * 1024 * 1024;

/// Writes the reports of all attempts of one engine.
#[derive(Debug)]
pub(crate) struct ReportWriter {
    store: Arc<dyn Store>,
    /// Attempts with something new. Lock order: a buffer first, then this.
    unwritten: Mutex<BTreeMap<AttemptId, Arc<AttemptReporter>>>,
    /// The size of their lines.
    bytes: AtomicUsize,
    /// How many reports were dropped, because there was no room.
    dropped: AtomicUsize,
    changed: Notify,
    /// One write at a time: an ending waits for the write that may contain the
    /// first half of its log.
    writing: tokio::sync::Mutex<()>,
    /// The last write that an ending waited for timed out. Until a write succeeds,
    /// endings do not wait.
    hangs: AtomicBool,
}

impl ReportWriter {
    pub(crate) fn new(store: Arc<dyn Store>) -> Arc<Self> {
        Arc::new(Self {
            store,
            unwritten: Mutex::default(),
            bytes: AtomicUsize::new(0),
            dropped: AtomicUsize::new(0),
            changed: Notify::new(),
            writing: tokio::sync::Mutex::default(),
            hangs: AtomicBool::new(false),
        })
    }

    /// The reporter of one attempt, which removes its secrets.
    pub(crate) fn reporter(
        self: &Arc<Self>,
        id: AttemptId,
        secrets: Redactor,
    ) -> Arc<AttemptReporter> {
        Arc::new(AttemptReporter { id, secrets, reports: self.clone(), buffer: Mutex::default() })
    }

    /// Writes new reports until it is aborted.
    pub(crate) async fn run(self: Arc<Self>) {
        let mut backoff = Backoff::new();
        let mut failing = false;
        loop {
            self.changed.notified().await;
            while !lock(&self.unwritten).is_empty() {
                tokio::time::sleep(EVERY).await;
                match self.write(|_| true).await {
                    Ok(()) => {
                        backoff = Backoff::new();
                        failing = false;
                        self.log_dropped();
                    }
                    Err(error) => {
                        if !std::mem::replace(&mut failing, true) {
                            tracing::warn!(
                                "progress and logs of tasks cannot be written; they are kept as far as there is room: {error}"
                            );
                        }
                        tokio::time::sleep(backoff.next()).await;
                    }
                }
            }
        }
    }

    /// Writes the reports of these attempts before their end is recorded. If that
    /// fails, they are written later.
    pub(crate) async fn flush_before(self: &Arc<Self>, endings: &[AttemptRecord]) {
        let new: BTreeSet<AttemptId> = {
            let unwritten = lock(&self.unwritten);
            let ids = endings.iter().map(|ending| ending.id);
            ids.filter(|id| unwritten.contains_key(id)).collect()
        };
        if !new.is_empty() && !self.hangs.load(Ordering::Relaxed) {
            self.write_in_time(move |id| new.contains(id)).await;
        }
    }

    /// Writes all reports that are left when the engine stops.
    pub(crate) async fn flush_at_end(self: &Arc<Self>) {
        self.write_in_time(|_| true).await;
        let left = std::mem::take(&mut *lock(&self.unwritten)).len();
        if left > 0 {
            tracing::warn!("the last log lines of {left} attempts could not be written");
        }
    }

    /// A write that takes longer goes on in the background. If it were dropped, its
    /// connection would go back to the pool while the server is still busy with it.
    async fn write_in_time(
        self: &Arc<Self>,
        which: impl Fn(&AttemptId) -> bool + Send + Sync + 'static,
    ) {
        let reports = self.clone();
        let writing = tokio::spawn(async move { reports.write(which).await });
        match tokio::time::timeout(ENDING_TIMEOUT, writing).await {
            Ok(Ok(Ok(()))) => {}
            Ok(Ok(Err(error))) => tracing::debug!("logs are written later: {error}"),
            Ok(Err(panicked)) => tracing::error!("logs are written later: {panicked}"),
            Err(_) => {
                self.hangs.store(true, Ordering::Relaxed);
                tracing::warn!(
                    "progress and logs of tasks cannot be written now; results are recorded without them"
                );
            }
        }
    }

    async fn write(&self, which: impl Fn(&AttemptId) -> bool) -> Result<(), StoreError> {
        let reporters: Vec<Arc<AttemptReporter>> = {
            let unwritten = lock(&self.unwritten);
            unwritten.iter().filter(|(id, _)| which(id)).map(|(_, j)| j.clone()).collect()
        };
        let mut reporters = reporters.into_iter();
        loop {
            // One lock per batch, so that an ending waits for one batch only.
            let _alone = self.writing.lock().await;
            let batch = gather(&mut reporters);
            if batch.is_empty() {
                return Ok(());
            }
            self.send(&batch).await?;
        }
    }

    async fn send(&self, batch: &[(Arc<AttemptReporter>, Report)]) -> Result<(), StoreError> {
        let reports: Vec<Report> = batch.iter().map(|(_, report)| report.clone()).collect();
        match self.store.report(&reports).await {
            Ok(skipped) => {
                for (reporter, report) in batch {
                    if !skipped.contains(&report.id) {
                        reporter.written(report);
                    }
                }
                self.hangs.store(false, Ordering::Relaxed);
                Ok(())
            }
            // Only `InvalidData` is about the reports themselves.
            Err(StoreError::InvalidData(why)) => {
                if let [(reporter, report)] = batch {
                    tracing::warn!("the progress and log of {} cannot be stored: {why}", report.id);
                    reporter.written(report);
                    return Ok(());
                }
                let (one, other) = batch.split_at(batch.len() / 2);
                Box::pin(self.send(one)).await?;
                Box::pin(self.send(other)).await
            }
            Err(error) => Err(error),
        }
    }

    fn log_dropped(&self) {
        let count = self.dropped.swap(0, Ordering::Relaxed);
        if count > 0 {
            tracing::warn!(
                "{count} log lines or progress reports were dropped, because too many could not be written"
            );
        }
    }

    fn has_room_for(&self, bytes: usize) -> bool {
        let before = self.bytes.fetch_add(bytes, Ordering::Relaxed);
        let fits = before + bytes <= UNWRITTEN_BYTES_MAX;
        if !fits {
            self.bytes.fetch_sub(bytes, Ordering::Relaxed);
        }
        fits
    }
}

/// Collects the progress and the log of one attempt.
#[derive(Debug)]
pub(crate) struct AttemptReporter {
    id: AttemptId,
    pub(crate) secrets: Redactor,
    reports: Arc<ReportWriter>,
    buffer: Mutex<ReportBuffer>,
}

/// What an attempt has reported and is not written yet.
#[derive(Debug, Default)]
struct ReportBuffer {
    progress: Option<ProgressReport>,
    /// Lines to be written.
    lines: VecDeque<LogLine>,
    /// How many lines were logged, and how many of the first lines and their bytes
    /// were kept, since the attempt began.
    logged: i32,
    kept: usize,
    kept_bytes: usize,
    /// The limit of lines that the handler has set.
    lines_max: Option<usize>,
    /// The beginning of the log is full. Later lines go to the tail, which drops its
    /// oldest and is written when the attempt ends: errors come last.
    full: bool,
    tail: VecDeque<LogLine>,
    tail_bytes: usize,
    /// Grows with each change.
    version: i64,
    /// Whether the reporter is in `ReportWriter::unwritten`.
    listed: bool,
    /// The attempt has ended: later reports are ignored.
    closed: bool,
}

impl AttemptReporter {
    pub(crate) fn progress(self: &Arc<Self>, percent: f64, message: &str) {
        let message = self.secrets.text(message);
        let mut buffer = lock(&self.buffer);
        if buffer.closed {
            return;
        }
        buffer.progress = Some(ProgressReport::new(percent, &message));
        self.changed(buffer);
    }

    pub(crate) fn log(self: &Arc<Self>, level: LogLevel, message: &str) {
        let message = self.secrets.text(message);
        let mut buffer = lock(&self.buffer);
        if buffer.closed {
            return;
        }
        buffer.logged = buffer.logged.saturating_add(1);
        let line = LogLine::new(buffer.logged, level, &message);
        let bytes = line.message.len();
        let lines_max = buffer.lines_max.unwrap_or(LINES_MAX);
        let head_max = lines_max.div_ceil(2);
        buffer.full |= buffer.kept >= head_max || buffer.kept_bytes + bytes > LOG_BYTES_MAX / 2;
        if buffer.full {
            self.add_to_tail(&mut buffer, line, lines_max - head_max);
        } else if self.reports.has_room_for(size(&line)) {
            buffer.kept += 1;
            buffer.kept_bytes += bytes;
            buffer.lines.push_back(line);
        }
        self.changed(buffer);
    }

    /// Keeps the last lines, within their number and their bytes.
    fn add_to_tail(&self, buffer: &mut ReportBuffer, line: LogLine, lines_max: usize) {
        let bytes = line.message.len();
        while buffer.tail.len() >= lines_max.max(1) || buffer.tail_bytes + bytes > LOG_BYTES_MAX / 2
        {
            if !self.drop_oldest_of_tail(buffer) {
                break;
            }
        }
        if lines_max == 0 {
            return;
        }
        // Other attempts may have taken all the room: then drop an older line of
        // this attempt.
        while !self.reports.has_room_for(size(&line)) {
            if !self.drop_oldest_of_tail(buffer) {
                return;
            }
        }
        buffer.tail_bytes += bytes;
        buffer.tail.push_back(line);
    }

    fn drop_oldest_of_tail(&self, buffer: &mut ReportBuffer) -> bool {
        let Some(line) = buffer.tail.pop_front() else {
            return false;
        };
        buffer.tail_bytes -= line.message.len();
        self.reports.bytes.fetch_sub(size(&line), Ordering::Relaxed);
        true
    }

    /// Keeps at most this many lines: the first half and the last half.
    pub(crate) fn keep_lines(&self, lines_max: usize) {
        lock(&self.buffer).lines_max = Some(lines_max.min(LINES_MAX));
    }

    /// Ignores later reports, and has the last lines written.
    pub(crate) fn close(self: &Arc<Self>) {
        let mut buffer = lock(&self.buffer);
        buffer.closed = true;
        let tail = std::mem::take(&mut buffer.tail);
        if !tail.is_empty() {
            buffer.lines.extend(tail);
            self.changed(buffer);
        }
    }

    fn changed(self: &Arc<Self>, mut buffer: MutexGuard<'_, ReportBuffer>) {
        buffer.version += 1;
        if buffer.listed {
            return;
        }
        let mut unwritten = lock(&self.reports.unwritten);
        if unwritten.len() < UNWRITTEN_ATTEMPTS_MAX {
            unwritten.insert(self.id, self.clone());
            buffer.listed = true;
            self.reports.changed.notify_one();
        } else {
            self.forget(&mut buffer, i32::MAX);
            while self.drop_oldest_of_tail(&mut buffer) {}
            self.reports.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// What is not written yet; `None` if there is nothing.
    fn report(&self) -> Option<Report> {
        let buffer = lock(&self.buffer);
        buffer.listed.then(|| Report {
            id: self.id,
            version: buffer.version,
            lines_total: buffer.logged,
            progress: buffer.progress.clone(),
            lines: buffer.lines.iter().cloned().collect(),
        })
    }

    /// Removes the lines up to this one.
    fn forget(&self, buffer: &mut ReportBuffer, last: i32) {
        while buffer.lines.front().is_some_and(|line| line.line <= last) {
            if let Some(line) = buffer.lines.pop_front() {
                self.reports.bytes.fetch_sub(size(&line), Ordering::Relaxed);
            }
        }
    }

    /// Removes what was written; if nothing is new since, also itself from the
    /// writer.
    fn written(&self, report: &Report) {
        let mut buffer = lock(&self.buffer);
        if let Some(last) = report.lines.last() {
            self.forget(&mut buffer, last.line);
        }
        if buffer.version == report.version {
            buffer.listed = false;
            lock(&self.reports.unwritten).remove(&self.id);
        }
    }
}

/// The reports of one statement, without those that were written meanwhile.
fn gather(
    reporters: &mut impl Iterator<Item = Arc<AttemptReporter>>,
) -> Vec<(Arc<AttemptReporter>, Report)> {
    let (mut batch, mut lines, mut bytes) = (Vec::new(), 0, 0);
    while batch.len() < BATCH_ATTEMPTS_MAX && lines < BATCH_LINES_MAX && bytes < BATCH_BYTES_MAX {
        let Some(reporter) = reporters.next() else { break };
        if let Some(report) = reporter.report() {
            lines += report.lines.len();
            bytes += report.lines.iter().map(|line| line.message.len()).sum::<usize>();
            batch.push((reporter, report));
        }
    }
    batch
}

fn size(line: &LogLine) -> usize {
    line.message.len() + LINE_OVERHEAD_BYTES
}

#[cfg(all(test, feature = "sqlite"))]
mod tests;
