//! Sessions of the database whose locks hold up the work.

use std::fmt;
use std::time::Duration;

use jiff::Timestamp;
use serde::Serialize;

use crate::contract::Store;
use crate::error::StoreError;
use task_engine_core::display::span;

/// A session of the database with an open transaction that may block others.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct BlockingSession {
    /// Its process on the server.
    pub pid: i32,
    /// The database user.
    pub user: String,
    /// The name that the client has set.
    pub application: String,
    /// Its state, like `idle in transaction`; empty if this user may not see it.
    pub state: String,
    /// When its transaction began.
    pub since: Option<Timestamp>,
    /// For how long it has been open.
    #[serde(skip)]
    pub open_for: Option<Duration>,
    /// When its last statement began.
    pub query_since: Option<Timestamp>,
    /// Our tables that it has locked, and how: `waiting_tasks (ShareLock)`.
    pub locks: Vec<String>,
    /// How many sessions wait for it.
    pub waiting: i64,
}

/// A description for people.
impl fmt::Display for BlockingSession {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name: Vec<&str> =
            [self.user.as_str(), &self.application].into_iter().filter(|s| !s.is_empty()).collect();
        write!(f, "process {} ({})", self.pid, name.join(", "))?;
        if !self.state.is_empty() {
            write!(f, ", {}", self.state)?;
        }
        if let Some(open_for) = self.open_for {
            write!(f, ", open for {}", span(open_for))?;
        }
        if !self.locks.is_empty() {
            write!(f, ", has locked {}", self.locks.join(", "))?;
        }
        if let Some(since) = self.query_since {
            write!(f, ", last statement began {since:.0}")?;
        }
        match self.waiting {
            0 => Ok(()),
            1 => f.write_str(", 1 session waits for it"),
            some => write!(f, ", {some} sessions wait for it"),
        }
    }
}

/// Returns the sessions that most probably block a statement: those that have locked a whole table,
/// else those that others wait for, else the one with the oldest transaction.
#[must_use]
pub fn suspects(mut sessions: Vec<BlockingSession>) -> Vec<BlockingSession> {
    if sessions.iter().any(|one| !one.locks.is_empty()) {
        sessions.retain(|one| !one.locks.is_empty());
    } else if sessions.iter().any(|one| one.waiting > 0) {
        sessions.retain(|one| one.waiting > 0);
    } else {
        sessions.sort_by_key(|one| std::cmp::Reverse(one.open_for));
        sessions.truncate(1);
    }
    sessions
}

/// Returns a sentence about them, for the end of an error message.
#[must_use]
pub fn blocked_by(sessions: &[BlockingSession]) -> String {
    const SHOWN_MAX: usize = 3;
    if sessions.is_empty() {
        return "`task-engine doctor` names the session that holds the lock".to_owned();
    }
    let shown: Vec<_> = sessions.iter().take(SHOWN_MAX).map(ToString::to_string).collect();
    let more = sessions.len().saturating_sub(SHOWN_MAX);
    let more = if more > 0 { format!("; and {more} more") } else { String::new() };
    format!("blocked by {}{more}; see `task-engine doctor`", shown.join("; "))
}

/// Returns why attempts were not reclaimed: a reclaim waits neither for a lock on a table nor for a
/// transaction that is about to complete the task.
pub async fn why_not_reclaimed(store: &dyn Store) -> Result<String, StoreError> {
    Ok(blocked_by(&suspects(store.blocking_sessions().await?)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn table_locks_are_suspected_first() {
        let session = |pid, locks: &[&str], waiting, secs| BlockingSession {
            pid,
            locks: locks.iter().map(|lock| (*lock).to_owned()).collect(),
            waiting,
            open_for: Some(Duration::from_secs(secs)),
            ..BlockingSession::default()
        };
        let pids = |sessions: Vec<BlockingSession>| -> Vec<i32> {
            suspects(sessions).iter().map(|one| one.pid).collect()
        };
        let (idle, awaited, locker) = (
            session(1, &[], 0, 90),
            session(2, &[], 3, 5),
            session(3, &["claims (ShareLock)"], 0, 1),
        );
        assert_eq!(pids(vec![idle.clone(), awaited.clone(), locker]), [3]);
        assert_eq!(pids(vec![idle.clone(), awaited]), [2]);
        assert_eq!(pids(vec![session(4, &[], 0, 1), idle]), [1]);
        assert_eq!(pids(vec![]), [] as [i32; 0]);
    }

    #[test]
    fn blocking_session_is_named() {
        let session = BlockingSession {
            pid: 7,
            user: "ann".into(),
            application: "psql".into(),
            state: "idle in transaction".into(),
            open_for: Some(Duration::from_secs(40)),
            query_since: Some("2026-12-24T17:00:00Z".parse().unwrap()),
            locks: vec!["waiting_tasks (ShareRowExclusiveLock)".into()],
            waiting: 2,
            since: None,
        };
        assert_eq!(
            blocked_by(&[session]),
            "blocked by process 7 (ann, psql), idle in transaction, open for 40 s, has locked waiting_tasks (ShareRowExclusiveLock), last statement began 2026-12-24T17:00:00Z, 2 sessions wait for it; see `task-engine doctor`"
        );
        assert!(blocked_by(&[]).contains("task-engine doctor"));
    }
}
