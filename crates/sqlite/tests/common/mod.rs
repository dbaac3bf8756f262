//! A file with tables in it, and an engine that plays its part.
#![allow(dead_code)] // Each test uses some of it.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use task_engine_core::attempt::RunSpan;
use task_engine_core::attempt::{AttemptRecord, NextState};
use task_engine_core::claim::ClaimId;
use task_engine_core::claim::ClaimIds;
use task_engine_core::instance::{InstanceId, NewInstance};
use task_engine_core::json::Json;
use task_engine_core::queue::Lanes;
use task_engine_core::task::{NewTask, TaskOptions, TaskStatus};
use task_engine_sqlite::SqliteStore;
use task_engine_store::claim::{Claim, ClaimedTask, Claimer};
use tempfile::TempDir;

pub(crate) struct File {
    folder: TempDir,
}

impl File {
    pub(crate) fn new() -> Self {
        Self { folder: tempfile::tempdir().expect("a folder") }
    }

    pub(crate) async fn with_tables() -> Self {
        let file = Self::new();
        file.open().migrate().await.expect("migrate");
        file
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.folder.path().join("tasks.db")
    }

    pub(crate) fn open(&self) -> SqliteStore {
        SqliteStore::open(self.path()).expect("open")
    }

    /// A connection of the application's own.
    pub(crate) fn connect(&self) -> rusqlite::Connection {
        let connection = rusqlite::Connection::open(self.path()).expect("connect");
        connection.busy_timeout(Duration::from_secs(5)).expect("busy_timeout");
        connection
    }
}

pub(crate) fn task(class: &str) -> NewTask {
    NewTask::new(class, Json::empty_object()).expect("a task")
}

/// An engine that serves the class `work` in the queue `default`.
pub(crate) struct Engine {
    pub(crate) id: InstanceId,
    claimer: Box<dyn Claimer>,
    ids: ClaimIds,
}

impl Engine {
    pub(crate) async fn register(store: &SqliteStore, name: &str) -> Self {
        let classes = BTreeMap::from([("work".to_owned(), TaskOptions::default())]);
        let new = NewInstance {
            name: name.to_owned(),
            host: "here".to_owned(),
            pid: 1,
            process: None,
            version: "0".to_owned(),
            workers: 1,
            lease: Duration::from_secs(30),
            queues: vec!["default".to_owned()],
            pools: Vec::new(),
            classes,
        };
        let id = store.register(&new).await.expect("register");
        let claimer = store.claimer(id, Lanes::new(new.queues, vec!["work".to_owned()]));
        Self { id, claimer, ids: ClaimIds::new(id) }
    }

    pub(crate) async fn claim(&mut self, limit: usize) -> (ClaimId, Claim) {
        let id = self.ids.take();
        (id, self.claimer.claim(id, limit).await.expect("claim"))
    }

    pub(crate) fn success(&self, claim_id: ClaimId, task: &ClaimedTask) -> AttemptRecord {
        AttemptRecord {
            id: task.id,
            retry_number: task.retry_number,
            claim_id,
            instance_id: self.id,
            ran: Some(RunSpan { worker: Some(0), lasted: Duration::ZERO, ended: Instant::now() }),
            result: Some(Json::null()),
            error: None,
            next: NextState::End(TaskStatus::Stopped),
            cancel_response: None,
        }
    }
}
