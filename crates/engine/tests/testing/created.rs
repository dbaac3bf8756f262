//! What was created can be seen, and what is missing is explained.

use std::time::Duration;

use task_engine::NewTask;
use task_engine::postgres::{PgStore, Schema};
use task_engine::sqlite::{create_in, rusqlite};
use task_engine::testing::{CreatedTasks, Harness, created_in, created_in_postgres};
use task_engine_test_harness::{TestServer, connect};

use crate::tasks::{Again, Login, Newsletter, SendMail, engine, harness, mail, panic_of};

fn new(to: &str) -> NewTask {
    NewTask::of(&mail(to)).unwrap()
}

fn names(created: &CreatedTasks<SendMail>) -> Vec<&str> {
    created.iter().map(|mail| mail.to.as_str()).collect()
}

#[tokio::test]
async fn created_tasks_have_details() {
    let harness = harness().await;
    let client = harness.tasks();
    client.create(mail("ada")).await.unwrap();
    let wait = Duration::from_secs(600);
    client.create(mail("bob")).after(wait).priority(5).queue("mail").await.unwrap();
    client.create(Again).await.unwrap();
    let created = harness.created::<SendMail>().await;
    assert_eq!(names(&created), ["ada", "bob"]);
    assert_eq!((created[0].queue.as_str(), created[0].priority), ("default", 0));
    assert_eq!((created[1].queue.as_str(), created[1].priority), ("mail", 5));
    assert_eq!((created[0].wait(), created[1].wait()), (Duration::ZERO, wait));
    let bob = harness.assert_created(&mail("bob")).await;
    assert_eq!(bob.id, created[1].id);
    harness.assert_created(&Again).await;
    harness.assert_not_created(&mail("eve")).await;
    harness.created::<Newsletter>().await.assert_empty();
}

#[tokio::test]
async fn child_tasks_count_as_created() {
    let harness = harness().await;
    let done = harness.perform(Newsletter { readers: vec!["ada".into()] }).await;
    let created = harness.assert_created(&mail("ada")).await;
    assert_eq!(created.priority, 3);
    assert!(created.context.as_str().contains(&format!(r#""parent_id":{}"#, done.task_id)));
}

#[tokio::test]
async fn missing_task_message_lists_others() {
    let harness = harness().await;
    let words = panic_of(harness.assert_created(&mail("ada"))).await;
    assert!(words.contains("at crates/engine/tests/testing/created.rs:"), "{words}");
    let expected = r#"no task of class send_mail was created with {"to":"ada","words":7}"#;
    assert!(words.contains(expected), "{words}");
    assert!(words.ends_with("none of this class was"), "{words}");

    let client = harness.tasks();
    client.create(mail("bob")).await.unwrap();
    client.create(SendMail { to: "ada".into(), words: 8 }).await.unwrap();
    client.create(Again).await.unwrap();
    let words = panic_of(harness.assert_created(&mail("ada"))).await;
    let lines: Vec<_> = words.lines().skip(1).collect();
    let expected = [
        r#"  task 1: to is "bob", not "ada""#,
        "  task 2: words is 8, not 7",
        "  tasks of other classes: again (1)",
    ];
    assert_eq!(lines, expected);
    let words = panic_of(harness.assert_not_created(&mail("bob"))).await;
    assert!(words.ends_with(r#"task 1 (send_mail) with {"to":"bob","words":7}"#), "{words}");
}

#[tokio::test]
async fn secrets_are_compared_not_shown() {
    let harness = harness().await;
    let login = |password: &str| Login { user: "ada".into(), password: password.into() };
    harness.tasks().create(login("hunter2")).await.unwrap();
    let created = harness.assert_created(&login("hunter2")).await;
    assert_eq!(created.password, "hunter2", "the test itself may see it");
    let words = panic_of(harness.assert_created(&login("letmein"))).await;
    assert!(words.contains(r#"task 1: password is "[secret]", not "[secret]""#), "{words}");
    assert!(!words.contains("hunter2") && !words.contains("letmein"), "{words}");
    assert!(!format!("{created:?}").contains("hunter2"));
}

#[tokio::test]
async fn sqlite_transaction_shows_own_creations() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("app.db");
    let harness = Harness::open(&file, engine).await;
    harness.tasks().create(mail("before")).await.unwrap();
    let mut connection = rusqlite::Connection::open(&file).unwrap();
    assert!(created_in::<SendMail>(&connection).is_empty(), "all of it has committed");
    let mut transaction = connection.transaction().unwrap();
    assert!(created_in::<SendMail>(&transaction).is_empty());
    create_in(&transaction, &[new("a")]).unwrap();
    let savepoint = transaction.savepoint().unwrap();
    create_in(&savepoint, &[new("b"), NewTask::of(&Again).unwrap()]).unwrap();
    savepoint.commit().unwrap();
    let created = created_in::<SendMail>(&transaction);
    assert_eq!(names(&created), ["a", "b"]);
    created.assert_contains(&mail("a"));
    let words = panic_of(async { created.assert_contains(&mail("before")).id }).await;
    assert!(words.contains(r#"to is "a", not "before""#), "{words}");
    assert_eq!(harness.created::<SendMail>().await.len(), 1, "not for others");
    transaction.rollback().unwrap();
    assert!(created_in::<SendMail>(&connection).is_empty());
}

#[tokio::test]
async fn postgresql_transaction_shows_own_creations() {
    let url = TestServer::shared().create_database().await;
    let store = PgStore::connect(&url).await.unwrap();
    let harness = Harness::on(store, engine).await;
    harness.tasks().create(mail("before")).await.unwrap();
    let mut client = connect(&url).await;
    let schema = Schema::default();
    assert!(created_in_postgres::<SendMail>(&schema, &client).await.is_empty());
    let mut transaction = client.transaction().await.unwrap();
    schema.create_in(&transaction, &[new("a")]).await.unwrap();
    let savepoint = transaction.transaction().await.unwrap();
    schema.create_in(&savepoint, &[new("b").priority(4)]).await.unwrap();
    savepoint.commit().await.unwrap();
    let undone = transaction.transaction().await.unwrap();
    schema.create_in(&undone, &[new("undone")]).await.unwrap();
    undone.rollback().await.unwrap();
    // Somebody else's commit after this one has begun is visible here.
    harness.tasks().create(mail("meanwhile")).await.unwrap();
    let created = created_in_postgres::<SendMail>(&schema, &transaction).await;
    assert_eq!(names(&created), ["a", "b"]);
    assert_eq!(created.assert_contains(&mail("b")).priority, 4);
    transaction.rollback().await.unwrap();
    assert!(created_in_postgres::<SendMail>(&schema, &client).await.is_empty());
    assert_eq!(names(&harness.created().await), ["before", "meanwhile"]);
}

#[cfg(feature = "sqlx")]
#[tokio::test]
async fn sqlx_transaction_shows_own_creations() {
    use task_engine::postgres::sqlx::{Connection as _, PgConnection};
    use task_engine::testing::created_in_sqlx;
    let url = TestServer::shared().create_database().await;
    let store = PgStore::connect(&url).await.unwrap();
    let harness = Harness::on(store, engine).await;
    let mut connection = PgConnection::connect(&url).await.unwrap();
    let mut transaction = connection.begin().await.unwrap();
    let schema = Schema::default();
    schema.create_in_sqlx(&mut transaction, &[new("a")]).await.unwrap();
    harness.tasks().create(mail("meanwhile")).await.unwrap();
    let created = created_in_sqlx::<SendMail>(&schema, &mut transaction).await;
    assert_eq!(names(&created), ["a"]);
    transaction.rollback().await.unwrap();
    assert_eq!(names(&harness.created().await), ["meanwhile"]);
}
