//! Pages have neither gaps nor duplicates.

use std::collections::BTreeSet;

use serde_json::json;

use crate::client::{Tables, postgres, sqlite};

#[tokio::test(flavor = "multi_thread")]
async fn pages_on_sqlite() {
    pages(sqlite().await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn pages_on_postgres() {
    pages(postgres().await).await;
}

async fn pages(tables: Tables) {
    let client = tables.open();
    let mut all = BTreeSet::new();
    for class in ["a", "b"] {
        let tasks = vec![json!({"class": class, "correlation_id": "all"}); 250];
        let created = client.post("/api/v1/tasks", &json!(tasks)).await.ok();
        let ids = created["tasks"].as_array().unwrap().clone();
        all.extend(ids.into_iter().map(|task| task["id"].as_i64().unwrap()));
    }
    assert_eq!(all.len(), 500);
    for (filter, expected, limit) in [("", 500, 33), ("class%3Da", 250, 7), ("id%3E0", 500, 500)] {
        let mut seen: Vec<i64> = Vec::new();
        let mut before = String::new();
        loop {
            let path = format!("/api/v1/tasks?filter={filter}&limit={limit}{before}");
            let page = client.get(&path).await.ok();
            let tasks = page["tasks"].as_array().unwrap();
            assert!(tasks.len() <= limit, "{path}");
            seen.extend(tasks.iter().map(|task| task["id"].as_i64().unwrap()));
            // New tasks do not shift the pages.
            client.post("/api/v1/tasks", &json!({"class": "late"})).await.ok();
            match page["next"].as_i64() {
                None => break,
                Some(next) => before = format!("&before={next}"),
            }
        }
        assert!(seen.windows(2).all(|two| two[0] > two[1]), "{filter}: newest first");
        seen.retain(|id| all.contains(id));
        assert_eq!(seen.len(), expected, "{filter}");
    }
    let (mut seen, mut after) = (Vec::new(), String::new());
    loop {
        let page = client.get(&format!("/api/v1/flows/all?limit=99{after}")).await.ok();
        let tasks = page["tasks"].as_array().unwrap();
        seen.extend(tasks.iter().map(|task| task["id"].as_i64().unwrap()));
        match page["next"].as_i64() {
            None => break,
            Some(next) => after = format!("&after={next}"),
        }
    }
    assert_eq!(seen, all.into_iter().collect::<Vec<_>>(), "oldest first");
}
