//! An export contains everything, and an import restores it unchanged.

use std::io::Cursor;
use std::sync::{Arc, Mutex};

use task_engine_core::recovery::Reclaim;
use task_engine_core::task::TaskStatus;
use task_engine_store::contract::Store;
use task_engine_store::error::StoreError;
use task_engine_store::export::{
    ExportFile, ExportFilter, ExportLine, IdShift, ImportIds, ImportOutcome,
};

use crate::TestDatabase;
use crate::everything::fill;
use crate::fixture::{Fixture, new_task};

/// With new ids, in a store that is in use, everything is there twice.
pub async fn import_appends_to_existing_tasks(db: &dyn TestDatabase) {
    let fixture = Fixture::open(db).await;
    fill(fixture.store.clone()).await;
    let before = export(&*fixture.store, &[]).await;
    let Some(ExportLine::Header(header)) = before.first().cloned() else { panic!("a header") };
    // Names of schedules are taken, so those go first.
    for name in ["hourly", "stopped"] {
        assert!(fixture.store.remove_schedule(name).await.expect("remove"));
    }
    let imported = import(&*fixture.store, &text(&before), ImportIds::New).await.expect("import");
    let ImportOutcome::Done { read, shift, holders } = imported else { panic!("{imported:?}") };
    assert_eq!(shift.tasks, header.last_task_id);
    let tasks = before.iter().filter(|line| matches!(line, ExportLine::Task(_))).count();
    assert_eq!(read.tasks, tasks as u64);
    let after = export(&*fixture.store, &[]).await;
    let copies: Vec<ExportLine> = before
        .iter()
        .filter(|line| matches!(line, ExportLine::Task(_)))
        .map(|line| {
            let mut copy = shift.apply(line.clone(), &header);
            if let ExportLine::Task(task) = &mut copy {
                // A key stays with the task that has it.
                task.has_unique_key = false;
            }
            copy
        })
        .collect();
    // As values: PostgreSQL keeps no order of names.
    let after: Vec<_> = after.iter().map(value).collect();
    for copy in copies {
        assert!(after.contains(&value(&copy)), "{copy:?}");
    }
    for holder in holders {
        fixture.store.reclaim(Reclaim::Lost(holder)).await.expect("take back");
    }
    // New tasks get ids after both.
    let next = fixture.create(new_task("next")).await;
    assert!(next.0 > header.last_task_id * 2, "{next}");
}

/// Ids are kept only in an empty store, and a file with an error anywhere changes
/// nothing.
pub async fn import_is_all_or_nothing(db: &dyn TestDatabase) {
    let fixture = Fixture::open(db).await;
    fill(fixture.store.clone()).await;
    let lines = export(&*fixture.store, &[]).await;
    let whole = text(&lines);
    let refused = import(&*fixture.store, &whole, ImportIds::Keep).await;
    assert!(matches!(refused, Ok(ImportOutcome::Conflict(_))), "{refused:?}");
    let taken = import(&*fixture.store, &whole, ImportIds::New).await;
    assert!(
        matches!(taken, Ok(ImportOutcome::Conflict(_))),
        "names of schedules are taken: {taken:?}"
    );
    let mut cut = whole.lines().map(|line| format!("{line}\n")).collect::<Vec<_>>();
    cut.pop();
    let no_end = cut.concat();
    let half = &whole[..whole.len() - 10];
    let twice = {
        let task = cut.iter().position(|line| line.starts_with("{\"task\"")).expect("a task");
        let mut lines = cut.clone();
        lines.insert(task, lines[task].clone());
        lines.concat()
    };
    let nowhere = whole.replacen("\"waiting\":{", "\"was_waiting\":{", 1);
    for (file, words) in [
        (no_end.as_str(), "the last line is missing"),
        (half, "cut off"),
        (&twice, "comes after task"),
        (&nowhere, "unknown field"),
    ] {
        let outcome = import(&*fixture.store, file, ImportIds::New).await;
        match outcome {
            Err(StoreError::InvalidData(why)) => assert!(why.contains(words), "{words}: {why}"),
            other => panic!("{words}: {other:?}"),
        }
    }
    assert_eq!(without_header(&export(&*fixture.store, &[]).await), without_header(&lines));
}

/// Only the selected tasks are exported, and the export stops when the reader does.
pub async fn export_can_be_filtered(db: &dyn TestDatabase) {
    let fixture = Fixture::open(db).await;
    fill(fixture.store.clone()).await;
    let all = export(&*fixture.store, &[]).await;
    let mut seen = 0;
    for status in TaskStatus::ALL {
        let some = export(&*fixture.store, &[status]).await;
        let tasks = some.iter().filter_map(|line| match line {
            ExportLine::Task(task) => Some(task.status),
            _ => None,
        });
        let tasks: Vec<_> = tasks.collect();
        assert!(!tasks.is_empty() && tasks.iter().all(|one| *one == status), "{status}: {tasks:?}");
        seen += tasks.len();
    }
    assert_eq!(seen, all.iter().filter(|line| matches!(line, ExportLine::Task(_))).count());
    let count = Arc::new(Mutex::new(0));
    let sink = {
        let count = count.clone();
        Box::new(move |_| {
            *count.lock().expect("a count") += 1;
            false
        })
    };
    fixture.store.export(&ExportFilter::default(), sink).await.expect("export");
    assert_eq!(*count.lock().expect("a count"), 1);
}

/// A shift by zero changes nothing, and ids beyond the maximum are refused.
pub async fn empty_store_can_be_exported(db: &dyn TestDatabase) {
    let fixture = Fixture::open(db).await;
    let lines = export(&*fixture.store, &[]).await;
    assert_eq!(lines.len(), 2, "{lines:?}");
    let imported = import(&*fixture.store, &text(&lines), ImportIds::Keep).await.expect("import");
    let ImportOutcome::Done { shift, holders, .. } = imported else { panic!("{imported:?}") };
    assert_eq!((shift, holders), (IdShift::default(), vec![]));
    assert_eq!(without_header(&export(&*fixture.store, &[]).await), without_header(&lines));
}

pub(crate) async fn export(store: &dyn Store, statuses: &[TaskStatus]) -> Vec<ExportLine> {
    let lines = Arc::new(Mutex::new(Vec::new()));
    let sink = {
        let lines = lines.clone();
        Box::new(move |line| {
            lines.lock().expect("lines").push(line);
            true
        })
    };
    let filter = ExportFilter { statuses: statuses.to_vec() };
    store.export(&filter, sink).await.expect("export");
    std::mem::take(&mut *lines.lock().expect("lines"))
}

pub(crate) fn text(lines: &[ExportLine]) -> String {
    lines.iter().map(|line| serde_json::to_string(line).expect("JSON") + "\n").collect()
}

fn value(line: &ExportLine) -> serde_json::Value {
    serde_json::to_value(line).expect("JSON")
}

fn without_header(lines: &[ExportLine]) -> &[ExportLine] {
    &lines[1..]
}

pub(crate) async fn import(
    store: &dyn Store,
    text: &str,
    ids: ImportIds,
) -> Result<ImportOutcome, StoreError> {
    let file = ExportFile::open(Box::new(Cursor::new(text.to_owned()))).expect("a header");
    store.import(file, ids).await
}
