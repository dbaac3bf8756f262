//! The history of all tasks according to the store, in one snapshot.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use task_engine::{Store, StoreError};
use task_engine_store::export::{
    ExecutionRecord, ExportFilter, ExportLine, InstanceRecord, ScheduleRecord, TaskRecord,
};

/// Tasks, engines and schedules, by their ids.
#[derive(Debug, Clone, Default)]
#[allow(missing_docs)]
pub struct History {
    pub tasks: BTreeMap<i64, TaskRecord>,
    pub instances: BTreeMap<i64, InstanceRecord>,
    pub schedules: Vec<ScheduleRecord>,
}

impl History {
    /// Reads everything.
    pub async fn read(store: &dyn Store) -> Result<Self, StoreError> {
        let history = Arc::new(Mutex::new(Self::default()));
        let gathered = history.clone();
        let sink = move |line| {
            gathered.lock().unwrap_or_else(PoisonError::into_inner).take(line);
            true
        };
        store.export(&ExportFilter::default(), Box::new(sink)).await?;
        let history = std::mem::take(&mut *history.lock().unwrap_or_else(PoisonError::into_inner));
        Ok(history)
    }

    fn take(&mut self, line: ExportLine) {
        match line {
            ExportLine::Task(task) => drop(self.tasks.insert(task.id, *task)),
            ExportLine::Instance(instance) => drop(self.instances.insert(instance.id, *instance)),
            ExportLine::Schedule(schedule) => self.schedules.push(*schedule),
            ExportLine::SkippedTask(_)
            | ExportLine::Header(_)
            | ExportLine::PausedQueue(_)
            | ExportLine::Limit(_)
            | ExportLine::Flow(_)
            | ExportLine::End(_) => {}
        }
    }

    /// Every attempt that has ended.
    pub fn executions(&self) -> impl Iterator<Item = (i64, &ExecutionRecord)> {
        self.tasks.values().flat_map(|task| task.executions.iter().map(|e| (task.id, e)))
    }

    /// How many attempts ended with this exception.
    #[must_use]
    pub fn count(&self, exception: &str) -> usize {
        self.executions().filter(|(_, e)| exception_of(e) == exception).count()
    }

    /// How many late results there are.
    #[must_use]
    pub fn late(&self) -> usize {
        self.tasks.values().map(|task| task.late_results.len()).sum()
    }
}

/// The name of the error that an attempt ended with; empty for a success.
#[must_use]
pub fn exception_of(execution: &ExecutionRecord) -> String {
    let Some(error) = &execution.error else {
        return String::new();
    };
    let error: serde_json::Value = error.decode().unwrap_or_default();
    error["exception"].as_str().unwrap_or_default().to_owned()
}
