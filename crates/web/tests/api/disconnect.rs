//! A client may disconnect during a change.

use futures_util::FutureExt as _;
use serde_json::json;
use task_engine_conformance::waiting::wait_for;
use task_engine_store::audit::{AuditFilter, AuditOutcome};

use crate::client::sqlite;

#[tokio::test]
async fn change_completes_after_disconnect() {
    let tables = sqlite().await;
    let client = tables.open();
    let tasks: Vec<_> = (0..1_000).map(|_| json!({"class": "a"})).collect();
    client.post("/api/v1/tasks", &json!(tasks)).await.ok();
    let all = json!({"filter": "class=a"});
    let asking = client.post("/api/v1/tasks/cancel", &all);
    assert!(asking.now_or_never().is_none(), "it takes a moment");
    let ended = wait_for("the change is audited", async || {
        let newest = tables.store.audit_page(&AuditFilter::newest(1)).await.unwrap().pop()?;
        (newest.action == "tasks.cancel" && newest.outcome == AuditOutcome::Done).then_some(newest)
    })
    .await;
    assert!(ended.detail.as_str().contains("1000"), "{ended:?}");
}
