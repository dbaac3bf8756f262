//! A batch is moved with few statements, which affect no other task.

mod common;

use common::{Engine, File, task};
use jiff::Timestamp;

/// Tasks that are due together, claims that end among them, and times between.
#[tokio::test]
async fn claim_takes_only_rows_it_read() {
    let file = File::with_tables().await;
    let store = file.open();
    let times = [3, 1, 2, 1, 1, 2, 1, 3, 2, 1, 1, 2];
    let tasks = times.map(|second| task("work").at(Timestamp::from_second(second).unwrap()));
    let ids = store.create(&tasks).await.unwrap();
    let mut expected: Vec<_> = times.into_iter().zip(ids).collect();
    expected.sort();
    let mut engine = Engine::register(&store, "one").await;
    let mut claimed = Vec::new();
    for limit in [1, 3, 4, 1, 100] {
        let (_, claim) = engine.claim(limit).await;
        claimed.extend(claim.tasks.iter().map(|task| (task.due_at.as_second(), task.id.task_id)));
        assert_eq!(claimed[..], expected[..claimed.len()]);
        assert_eq!(store.verify().await.unwrap(), [], "after {} of them", claimed.len());
    }
    assert_eq!(claimed.len(), expected.len());
}

/// Retention may remove a task while a zombie still works on it.
#[tokio::test]
async fn removed_task_in_batch_is_skipped() {
    let file = File::with_tables().await;
    let store = file.open();
    store.create(&vec![task("work"); 5]).await.unwrap();
    let mut engine = Engine::register(&store, "one").await;
    let (claim_id, claim) = engine.claim(5).await;
    let gone = claim.tasks[2].id;
    file.connect()
        .execute("DELETE FROM task_engine_created_tasks WHERE id = ?1", [gone.task_id.0])
        .unwrap();
    let endings: Vec<_> = claim.tasks.iter().map(|task| engine.success(claim_id, task)).collect();
    assert_eq!(store.record(&endings, &[claim_id]).await.unwrap(), [gone]);
    assert_eq!(store.verify().await.unwrap(), []);
    let ended: i64 = file
        .connect()
        .query_row("SELECT count(*) FROM task_engine_ended_executions", [], |row| row.get(0))
        .unwrap();
    assert_eq!(ended, 4);
}
