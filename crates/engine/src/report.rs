//! What attempts say while they run: said without waiting, written beside the
//! work in batches.
//!
//! To say something is to push it into the attempt's own [`Journal`]. One writer
//! for the whole engine takes what is new, at most twice a second, and nothing
//! runs when nothing is new. The recorder has it written before the end of an
//! attempt, so that the log of an ended attempt is complete. What is not on
//! record yet is kept until the store has answered, and sent again if it has
//! not: the key of each line makes that harmless. Everything is bounded, and
//! what goes beyond is dropped and counted; results never depend on any of this.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use task_engine_core::attempt::{AttemptId, Ending};
use task_engine_core::report::{LINES_MAX, LOG_BYTES_MAX, LogLevel, LogLine, Progress, Report};
use task_engine_core::secret::Redactor;
use task_engine_store::contract::Store;
use task_engine_store::error::StoreError;
use tokio::sync::Notify;

use crate::running::lock;
use crate::wake_up::Backoff;

/// How often what is new is written.
const EVERY: Duration = Duration::from_millis(500);
/// How long an ending waits for its log: a store that hangs must not hold up
/// results any more than it does by itself.
const ENDING_PATIENCE: Duration = Duration::from_secs(2);
/// How much an engine keeps that is not on record, all attempts together.
const UNWRITTEN_BYTES_MAX: usize = 32 * 1024 * 1024;
/// How many attempts it keeps something of. Those that run, and those that have
/// ended while their words could not be written.
const UNWRITTEN_ATTEMPTS_MAX: usize = 20_000;
/// A line costs more than its text.
const LINE_OVERHEAD_BYTES: usize = 100;
/// What goes into one statement.
const BATCH_ATTEMPTS_MAX: usize = 200;
const BATCH_LINES_MAX: usize = 2000;
const BATCH_BYTES_MAX: usize = 4 * 1024 * 1024;

/// What all attempts of one engine have said and is not on record.
#[derive(Debug)]
pub(crate) struct Reports {
    store: Arc<dyn Store>,
    /// Attempts with something new. Whoever locks this and a draft locks the
    /// draft first.
    unwritten: Mutex<BTreeMap<AttemptId, Arc<Journal>>>,
    /// The size of their lines.
    bytes: AtomicUsize,
    /// How often something was said that there was no room for at all.
    unheard: AtomicUsize,
    news: Notify,
    /// One write at a time: an ending waits for the one that may have the first
    /// half of its log.
    writing: tokio::sync::Mutex<()>,
    /// The last write that an ending waited for had no answer in time: until
    /// one has, endings wait for none.
    hangs: AtomicBool,
}

impl Reports {
    pub(crate) fn new(store: Arc<dyn Store>) -> Arc<Self> {
        Arc::new(Self {
            store,
            unwritten: Mutex::default(),
            bytes: AtomicUsize::new(0),
            unheard: AtomicUsize::new(0),
            news: Notify::new(),
            writing: tokio::sync::Mutex::default(),
            hangs: AtomicBool::new(false),
        })
    }

    /// Where one attempt says what it has to say, but for its secrets.
    pub(crate) fn journal(self: &Arc<Self>, id: AttemptId, secrets: Redactor) -> Arc<Journal> {
        Arc::new(Journal { id, secrets, reports: self.clone(), draft: Mutex::default() })
    }

    /// Writes what is new for as long as the engine lives.
    pub(crate) async fn run(self: Arc<Self>) {
        let mut backoff = Backoff::new();
        let mut failing = false;
        loop {
            self.news.notified().await;
            while !lock(&self.unwritten).is_empty() {
                tokio::time::sleep(EVERY).await;
                match self.write(|_| true).await {
                    Ok(()) => {
                        backoff = Backoff::new();
                        failing = false;
                        self.tell_unheard();
                    }
                    Err(error) => {
                        if !std::mem::replace(&mut failing, true) {
                            tracing::warn!(
                                "progress and logs of tasks are kept, as far as there is room, until the store takes them: {error}"
                            );
                        }
                        tokio::time::sleep(backoff.next()).await;
                    }
                }
            }
        }
    }

    /// Writes what these attempts have said, before their end is recorded. If it
    /// cannot be, it stays with what is written later.
    pub(crate) async fn before(self: &Arc<Self>, endings: &[Ending]) {
        let new: BTreeSet<AttemptId> = {
            let unwritten = lock(&self.unwritten);
            let ids = endings.iter().map(|ending| ending.id);
            ids.filter(|id| unwritten.contains_key(id)).collect()
        };
        if !new.is_empty() && !self.hangs.load(Ordering::Relaxed) {
            self.write_in_time(move |id| new.contains(id)).await;
        }
    }

    /// Writes all that is left, at the end of the engine.
    pub(crate) async fn last(self: &Arc<Self>) {
        self.write_in_time(|_| true).await;
        let left = std::mem::take(&mut *lock(&self.unwritten)).len();
        if left > 0 {
            tracing::warn!("the last words of {left} attempts could not be written");
        }
    }

    /// A write that takes longer goes on by itself: dropped half-way, it would
    /// leave a connection to the next one who needs it, on which the server
    /// answers nothing before it has done with this.
    async fn write_in_time(
        self: &Arc<Self>,
        which: impl Fn(&AttemptId) -> bool + Send + Sync + 'static,
    ) {
        let reports = self.clone();
        let writing = tokio::spawn(async move { reports.write(which).await });
        match tokio::time::timeout(ENDING_PATIENCE, writing).await {
            Ok(Ok(Ok(()))) => {}
            Ok(Ok(Err(error))) => tracing::debug!("logs are written later: {error}"),
            Ok(Err(panicked)) => tracing::error!("logs are written later: {panicked}"),
            Err(_) => {
                self.hangs.store(true, Ordering::Relaxed);
                tracing::warn!(
                    "progress and logs of tasks cannot be written now; results do not wait for them"
                );
            }
        }
    }

    async fn write(&self, which: impl Fn(&AttemptId) -> bool) -> Result<(), StoreError> {
        let journals: Vec<Arc<Journal>> = {
            let unwritten = lock(&self.unwritten);
            unwritten.iter().filter(|(id, _)| which(id)).map(|(_, j)| j.clone()).collect()
        };
        let mut journals = journals.into_iter();
        loop {
            // Batch by batch, so that an ending waits for one of them only.
            let _alone = self.writing.lock().await;
            let batch = gather(&mut journals);
            if batch.is_empty() {
                return Ok(());
            }
            self.send(&batch).await?;
        }
    }

    async fn send(&self, batch: &[(Arc<Journal>, Report)]) -> Result<(), StoreError> {
        let reports: Vec<Report> = batch.iter().map(|(_, report)| report.clone()).collect();
        match self.store.report(&reports).await {
            Ok(passed_over) => {
                for (journal, report) in batch {
                    if !passed_over.contains(&report.id) {
                        journal.is_on_record(report);
                    }
                }
                self.hangs.store(false, Ordering::Relaxed);
                Ok(())
            }
            // Only what the store says about the data is the data's fault.
            Err(StoreError::InvalidData(why)) => {
                if let [(journal, report)] = batch {
                    tracing::warn!("what {} has said cannot be stored: {why}", report.id);
                    journal.is_on_record(report);
                    return Ok(());
                }
                let (one, other) = batch.split_at(batch.len() / 2);
                Box::pin(self.send(one)).await?;
                Box::pin(self.send(other)).await
            }
            Err(error) => Err(error),
        }
    }

    fn tell_unheard(&self) {
        let count = self.unheard.swap(0, Ordering::Relaxed);
        if count > 0 {
            tracing::warn!(
                "{count} words of tasks were dropped, because too many could not be written"
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

/// What one attempt has said.
#[derive(Debug)]
pub(crate) struct Journal {
    id: AttemptId,
    pub(crate) secrets: Redactor,
    reports: Arc<Reports>,
    draft: Mutex<Draft>,
}

#[derive(Debug, Default)]
struct Draft {
    progress: Option<Progress>,
    /// Lines that are to be written.
    lines: VecDeque<LogLine>,
    /// How many lines were said, and how many of the first ones and of their
    /// bytes were kept, since the attempt began.
    said: i32,
    kept: usize,
    kept_bytes: usize,
    /// How many lines the code of the attempt wants to be kept at the most.
    lines_max: Option<usize>,
    /// The beginning of the log is full. Lines that follow go to the tail, which
    /// pushes out its oldest and is written when the attempt ends: what failed is
    /// said last.
    full: bool,
    tail: VecDeque<LogLine>,
    tail_bytes: usize,
    /// Grows with all that is said.
    version: i64,
    /// Whether the journal is among the unwritten ones.
    listed: bool,
    /// The attempt has ended: whatever it left running is no longer heard.
    closed: bool,
}

impl Journal {
    pub(crate) fn progress(self: &Arc<Self>, percent: f64, message: &str) {
        let message = self.secrets.text(message);
        let mut draft = lock(&self.draft);
        if draft.closed {
            return;
        }
        draft.progress = Some(Progress::new(percent, &message));
        self.changed(draft);
    }

    pub(crate) fn log(self: &Arc<Self>, level: LogLevel, message: &str) {
        let message = self.secrets.text(message);
        let mut draft = lock(&self.draft);
        if draft.closed {
            return;
        }
        draft.said = draft.said.saturating_add(1);
        let line = LogLine::new(draft.said, level, &message);
        let bytes = line.message.len();
        let lines_max = draft.lines_max.unwrap_or(LINES_MAX);
        let head_max = lines_max.div_ceil(2);
        draft.full |= draft.kept >= head_max || draft.kept_bytes + bytes > LOG_BYTES_MAX / 2;
        if draft.full {
            self.add_to_tail(&mut draft, line, lines_max - head_max);
        } else if self.reports.has_room_for(size(&line)) {
            draft.kept += 1;
            draft.kept_bytes += bytes;
            draft.lines.push_back(line);
        }
        self.changed(draft);
    }

    /// Keeps the last lines, within their number and their bytes.
    fn add_to_tail(&self, draft: &mut Draft, line: LogLine, lines_max: usize) {
        let bytes = line.message.len();
        while draft.tail.len() >= lines_max.max(1) || draft.tail_bytes + bytes > LOG_BYTES_MAX / 2 {
            if !self.drop_oldest_of_tail(draft) {
                break;
            }
        }
        if lines_max == 0 {
            return;
        }
        // What others have said may have taken all the room: then an older line
        // of this attempt gives way.
        while !self.reports.has_room_for(size(&line)) {
            if !self.drop_oldest_of_tail(draft) {
                return;
            }
        }
        draft.tail_bytes += bytes;
        draft.tail.push_back(line);
    }

    fn drop_oldest_of_tail(&self, draft: &mut Draft) -> bool {
        let Some(line) = draft.tail.pop_front() else {
            return false;
        };
        draft.tail_bytes -= line.message.len();
        self.reports.bytes.fetch_sub(size(&line), Ordering::Relaxed);
        true
    }

    /// Keeps at most so many lines, half of them the first, half the last ones.
    pub(crate) fn keep_lines(&self, lines_max: usize) {
        lock(&self.draft).lines_max = Some(lines_max.min(LINES_MAX));
    }

    /// Says no more. The last lines are written now.
    pub(crate) fn close(self: &Arc<Self>) {
        let mut draft = lock(&self.draft);
        draft.closed = true;
        let tail = std::mem::take(&mut draft.tail);
        if !tail.is_empty() {
            draft.lines.extend(tail);
            self.changed(draft);
        }
    }

    fn changed(self: &Arc<Self>, mut draft: MutexGuard<'_, Draft>) {
        draft.version += 1;
        if draft.listed {
            return;
        }
        let mut unwritten = lock(&self.reports.unwritten);
        if unwritten.len() < UNWRITTEN_ATTEMPTS_MAX {
            unwritten.insert(self.id, self.clone());
            draft.listed = true;
            self.reports.news.notify_one();
        } else {
            self.forget(&mut draft, i32::MAX);
            while self.drop_oldest_of_tail(&mut draft) {}
            self.reports.unheard.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// All that is not on record; `None` if there is nothing.
    fn report(&self) -> Option<Report> {
        let draft = lock(&self.draft);
        draft.listed.then(|| Report {
            id: self.id,
            version: draft.version,
            lines_said: draft.said,
            progress: draft.progress.clone(),
            lines: draft.lines.iter().cloned().collect(),
        })
    }

    /// Forgets the lines up to this one.
    fn forget(&self, draft: &mut Draft, last: i32) {
        while draft.lines.front().is_some_and(|line| line.line <= last) {
            if let Some(line) = draft.lines.pop_front() {
                self.reports.bytes.fetch_sub(size(&line), Ordering::Relaxed);
            }
        }
    }

    /// Forgets what was written, and itself if nothing was said since.
    fn is_on_record(&self, report: &Report) {
        let mut draft = lock(&self.draft);
        if let Some(last) = report.lines.last() {
            self.forget(&mut draft, last.line);
        }
        if draft.version == report.version {
            draft.listed = false;
            lock(&self.reports.unwritten).remove(&self.id);
        }
    }
}

/// What goes into one statement. Those that somebody else has written meanwhile
/// are left out.
fn gather(journals: &mut impl Iterator<Item = Arc<Journal>>) -> Vec<(Arc<Journal>, Report)> {
    let (mut batch, mut lines, mut bytes) = (Vec::new(), 0, 0);
    while batch.len() < BATCH_ATTEMPTS_MAX && lines < BATCH_LINES_MAX && bytes < BATCH_BYTES_MAX {
        let Some(journal) = journals.next() else { break };
        if let Some(report) = journal.report() {
            lines += report.lines.len();
            bytes += report.lines.iter().map(|line| line.message.len()).sum::<usize>();
            batch.push((journal, report));
        }
    }
    batch
}

fn size(line: &LogLine) -> usize {
    line.message.len() + LINE_OVERHEAD_BYTES
}

#[cfg(all(test, feature = "sqlite"))]
mod tests {
    use task_engine_core::report::{LINE_BYTES_MAX, LogFilter};
    use task_engine_core::task::TaskId;
    use task_engine_sqlite::SqliteStore;

    use super::*;

    fn id(task_id: i64) -> AttemptId {
        AttemptId { task_id: TaskId(task_id), attempt: 1 }
    }

    /// A store without tables: every write fails.
    fn without_tables() -> Arc<Reports> {
        Reports::new(Arc::new(SqliteStore::open_in_memory().unwrap()))
    }

    #[tokio::test]
    async fn what_cannot_be_written_is_bounded_and_counted() {
        let reports = without_tables();
        let text = "x".repeat(LINE_BYTES_MAX);
        let journals: Vec<_> =
            (1..=300).map(|task| reports.journal(id(task), Redactor::default())).collect();
        for journal in &journals {
            for _ in 0..50 {
                journal.log(LogLevel::Info, &text);
            }
            journal.progress(50.0, "half");
        }
        assert!(reports.write(|_| true).await.is_err());
        let lines = |draft: &Draft| draft.lines.len() + draft.tail.len();
        let kept: usize = journals.iter().map(|journal| lines(&lock(&journal.draft))).sum();
        assert!(kept * LINE_BYTES_MAX <= UNWRITTEN_BYTES_MAX, "{kept} lines");
        assert!(kept * LINE_BYTES_MAX > UNWRITTEN_BYTES_MAX / 2, "{kept} lines");
        assert!(reports.bytes.load(Ordering::Relaxed) <= UNWRITTEN_BYTES_MAX);
        for journal in &journals {
            let report = journal.report().unwrap();
            assert_eq!(report.lines_said, 50, "all are counted");
            assert!(report.progress.is_some(), "the last progress is always kept");
        }
        let half = LOG_BYTES_MAX / LINE_BYTES_MAX / 2;
        assert_eq!(journals[0].report().unwrap().lines.len(), half);
        journals[0].close();
        assert_eq!(journals[0].report().unwrap().lines.len(), half * 2, "the last ones, too");
    }

    #[tokio::test]
    async fn log_keeps_first_and_last_lines() {
        let numbers = |journal: &Journal| -> Vec<i32> {
            journal.report().unwrap().lines.iter().map(|line| line.line).collect()
        };
        let say = |journal: &Arc<Journal>, lines: i32| {
            for line in 1..=lines {
                journal.log(LogLevel::Info, &format!("line {line}"));
            }
        };
        let reports = without_tables();
        let long = reports.journal(id(1), Redactor::default());
        say(&long, 200_000);
        assert_eq!(numbers(&long), (1..=500).collect::<Vec<_>>(), "while it runs");
        long.close();
        let kept: Vec<i32> = (1..=500).chain(199_501..=200_000).collect();
        assert_eq!(numbers(&long), kept);
        assert_eq!(long.report().unwrap().lines_said, 200_000);
        for (wanted, said, kept) in [
            (1000, 999, (1..=999).collect()),
            (3, 10, vec![1, 2, 10]),
            (1, 10, vec![1]),
            (0, 10, vec![]),
        ] {
            let journal = reports.journal(id(2), Redactor::default());
            journal.keep_lines(wanted);
            say(&journal, said);
            journal.close();
            assert_eq!(numbers(&journal), kept, "{wanted} of {said}");
            journal.is_on_record(&journal.report().unwrap());
        }
        long.is_on_record(&long.report().unwrap());
        assert_eq!(reports.bytes.load(Ordering::Relaxed), 0, "all room is free again");
    }

    #[test]
    fn there_are_not_too_many_either() {
        let reports = without_tables();
        for task in 1..=20_100 {
            let journal = reports.journal(id(task), Redactor::default());
            journal.log(LogLevel::Info, "x");
            journal.progress(1.0, "x");
            journal.close();
        }
        assert_eq!(lock(&reports.unwritten).len(), UNWRITTEN_ATTEMPTS_MAX);
        assert_eq!(reports.unheard.load(Ordering::Relaxed), 200);
        let kept = UNWRITTEN_ATTEMPTS_MAX * (LINE_OVERHEAD_BYTES + 1);
        assert_eq!(reports.bytes.load(Ordering::Relaxed), kept);
    }

    #[tokio::test]
    async fn what_is_on_record_is_forgotten() {
        let store = Arc::new(SqliteStore::open_in_memory().unwrap());
        store.migrate().await.unwrap();
        let reports = Reports::new(store.clone());
        let (one, other) = (
            reports.journal(id(1), Redactor::default()),
            reports.journal(id(2), Redactor::default()),
        );
        for journal in [&one, &other] {
            journal.log(LogLevel::Info, "a");
            journal.log(LogLevel::Info, "b");
        }
        // Said while the first two were on their way.
        let on_its_way = one.report().unwrap();
        one.log(LogLevel::Info, "c");
        one.is_on_record(&on_its_way);
        assert_eq!(one.report().unwrap().lines.len(), 1);
        assert_eq!(lock(&reports.unwritten).len(), 2, "one has more to say");
        // Nothing is written about tasks that are not there, and nothing kept.
        reports.write(|id| id.task_id == TaskId(1)).await.unwrap();
        assert_eq!(lock(&reports.unwritten).len(), 1);
        reports.write(|_| true).await.unwrap();
        assert_eq!(lock(&reports.unwritten).len(), 0);
        assert!(one.report().is_none());
        assert_eq!(reports.bytes.load(Ordering::Relaxed), 0);
        let filter = LogFilter { limit: 10, ..LogFilter::default() };
        assert_eq!(store.logs(TaskId(1), &filter).await.unwrap(), []);
        // It is heard again.
        one.progress(100.0, "");
        assert_eq!(lock(&reports.unwritten).len(), 1);
    }

    #[tokio::test]
    async fn after_the_end_nothing_is_heard() {
        let reports = without_tables();
        let journal = reports.journal(id(1), Redactor::default());
        journal.close();
        journal.log(LogLevel::Error, "too late");
        journal.progress(1.0, "too late");
        assert!(lock(&reports.unwritten).is_empty());
    }
}
