//! What is exported is all that there is, and what is imported is as it was.

use std::io::Cursor;
use std::sync::{Arc, Mutex};

use task_engine_core::recovery::Reclaim;
use task_engine_core::task::TaskStatus;
use task_engine_store::contract::Store;
use task_engine_store::error::StoreError;
use task_engine_store::export::{ExportFilter, File, Ids, Imported, Line, Shift};

use crate::Database;
use crate::everything::fill;
use crate::fixture::{Fixture, new_task};

/// With new ids, in a store that is in use, everything is there twice.
pub async fn import_appends_to_existing_tasks(db: &dyn Database) {
    let fixture = Fixture::open(db).await;
    fill(fixture.store.clone()).await;
    let before = export(&*fixture.store, &[]).await;
    let Some(Line::Header(header)) = before.first().cloned() else { panic!("a header") };
    // Names of schedules are taken, so those go first.
    for name in ["hourly", "stopped"] {
        assert!(fixture.store.remove_schedule(name).await.expect("remove"));
    }
    let imported = import(&*fixture.store, &text(&before), Ids::New).await.expect("import");
    let Imported::Done { read, shift, holders } = imported else { panic!("{imported:?}") };
    assert_eq!(shift.tasks, header.last_task_id);
    let tasks = before.iter().filter(|line| matches!(line, Line::Task(_))).count();
    assert_eq!(read.tasks, tasks as u64);
    let after = export(&*fixture.store, &[]).await;
    let copies: Vec<Line> = before
        .iter()
        .filter(|line| matches!(line, Line::Task(_)))
        .map(|line| {
            let mut copy = shift.apply(line.clone(), &header);
            if let Line::Task(task) = &mut copy {
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
    // What is created now comes after both.
    let next = fixture.create(new_task("next")).await;
    assert!(next.0 > header.last_task_id * 2, "{next}");
}

/// Ids are not kept where there are others, and nothing of a file that is wrong
/// somewhere is taken in, wherever that is.
pub async fn import_is_all_or_nothing(db: &dyn Database) {
    let fixture = Fixture::open(db).await;
    fill(fixture.store.clone()).await;
    let lines = export(&*fixture.store, &[]).await;
    let whole = text(&lines);
    let refused = import(&*fixture.store, &whole, Ids::Keep).await;
    assert!(matches!(refused, Ok(Imported::Conflict(_))), "{refused:?}");
    let taken = import(&*fixture.store, &whole, Ids::New).await;
    assert!(matches!(taken, Ok(Imported::Conflict(_))), "names of schedules are taken: {taken:?}");
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
        let outcome = import(&*fixture.store, file, Ids::New).await;
        match outcome {
            Err(StoreError::InvalidData(why)) => assert!(why.contains(words), "{words}: {why}"),
            other => panic!("{words}: {other:?}"),
        }
    }
    assert_eq!(without_header(&export(&*fixture.store, &[]).await), without_header(&lines));
}

/// Only the tasks that are asked for are exported, and a reader that has enough
/// is left in peace.
pub async fn export_can_be_filtered(db: &dyn Database) {
    let fixture = Fixture::open(db).await;
    fill(fixture.store.clone()).await;
    let all = export(&*fixture.store, &[]).await;
    let mut seen = 0;
    for status in TaskStatus::ALL {
        let some = export(&*fixture.store, &[status]).await;
        let tasks = some.iter().filter_map(|line| match line {
            Line::Task(task) => Some(task.status),
            _ => None,
        });
        let tasks: Vec<_> = tasks.collect();
        assert!(!tasks.is_empty() && tasks.iter().all(|one| *one == status), "{status}: {tasks:?}");
        seen += tasks.len();
    }
    assert_eq!(seen, all.iter().filter(|line| matches!(line, Line::Task(_))).count());
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

/// A shift of nothing changes nothing, and ids beyond the last are refused.
pub async fn empty_store_can_be_exported(db: &dyn Database) {
    let fixture = Fixture::open(db).await;
    let lines = export(&*fixture.store, &[]).await;
    assert_eq!(lines.len(), 2, "{lines:?}");
    let imported = import(&*fixture.store, &text(&lines), Ids::Keep).await.expect("import");
    let Imported::Done { shift, holders, .. } = imported else { panic!("{imported:?}") };
    assert_eq!((shift, holders), (Shift::default(), vec![]));
    assert_eq!(without_header(&export(&*fixture.store, &[]).await), without_header(&lines));
}

pub(crate) async fn export(store: &dyn Store, statuses: &[TaskStatus]) -> Vec<Line> {
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

pub(crate) fn text(lines: &[Line]) -> String {
    lines.iter().map(|line| serde_json::to_string(line).expect("JSON") + "\n").collect()
}

fn value(line: &Line) -> serde_json::Value {
    serde_json::to_value(line).expect("JSON")
}

fn without_header(lines: &[Line]) -> &[Line] {
    &lines[1..]
}

pub(crate) async fn import(
    store: &dyn Store,
    text: &str,
    ids: Ids,
) -> Result<Imported, StoreError> {
    let file = File::open(Box::new(Cursor::new(text.to_owned()))).expect("a header");
    store.import(file, ids).await
}
