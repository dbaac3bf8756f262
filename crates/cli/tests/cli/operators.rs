//! Tokens and the record of what operators did, from outside.

use serde_json::{Value, json};
use task_engine::model::audit::{AuditOutcome, NewAuditEntry};
use task_engine::model::token::Secret;
use task_engine::postgres::PgStore;
use task_engine::sqlite::SqliteStore;
use task_engine::{Json, Store};
use task_engine_conformance::postgres_server::TestServer;

use super::support::Place;

fn lines(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

async fn tokens_come_and_go(place: &Place, store: &dyn Store) {
    let nothing = place.run(&["tokens", "list"]);
    assert_eq!((nothing.code, nothing.out.as_str()), (Some(0), ""));
    assert!(nothing.err.contains("tokens create"), "{}", nothing.err);

    let made = place.run(&["tokens", "create", "ada", "--role", "operator", "--expires", "90days"]);
    assert_eq!(made.code, Some(0), "{}", made.err);
    let token = made.out.trim_end();
    let secret: Secret = token.parse().expect("nothing but the token");
    assert!(!made.err.contains(&token[3..]), "{}", made.err);
    for words in ["ada", "operator", "expires in 90 days", "not shown again"] {
        assert!(made.err.contains(words), "{words}: {}", made.err);
    }
    let row = store.token_by_hash(&secret.hash()).await.unwrap().expect("it is good");
    assert_eq!((row.name.as_str(), row.role.as_str()), ("ada", "operator"));

    let again = place.run(&["tokens", "create", "ada", "--role", "viewer"]);
    assert_eq!((again.code, again.out.as_str()), (Some(4), ""));
    assert!(again.err.contains("tokens revoke ada"), "{}", again.err);
    place.ok(&["tokens", "create", "a\u{202e}b", "--role", "viewer"]);
    let listed = place.ok(&["tokens", "list"]);
    assert!(listed.contains(r"a\u{202e}b") && listed.contains("never"), "{listed}");
    let ada = listed.lines().find(|line| line.starts_with("ada ")).expect("ada is listed");
    assert!(ada.contains("operator") && ada.contains("expires in "), "{listed}");
    let json = place.ok(&["tokens", "list", "--json"]);
    assert!(!json.contains(&token[3..]) && !json.contains("hash"), "{json}");
    let rows = lines(&json);
    assert_eq!((&rows[0]["role"], &rows[1]["name"]), (&json!("viewer"), &json!("ada")));
    assert_eq!(rows[0]["expires_at"], Value::Null);

    assert_eq!(place.ok(&["tokens", "revoke", "ada"]), "token ada is revoked\n");
    assert_eq!(store.token_by_hash(&secret.hash()).await.unwrap(), None);
    let again = place.run(&["tokens", "revoke", "ada"]);
    assert_eq!((again.code, again.out.as_str()), (Some(0), ""));
    assert!(again.err.contains("was revoked before"), "{}", again.err);
    assert_eq!(place.run(&["tokens", "revoke", "nobody"]).code, Some(3));
    place.ok(&["tokens", "create", "ada", "--role", "admin"]);
}

async fn the_record_is_shown(place: &Place, store: &dyn Store) {
    let nothing = place.run(&["audit"]);
    assert_eq!((nothing.code, nothing.out.as_str()), (Some(0), ""));
    assert!(nothing.err.contains("Nobody has done anything"), "{}", nothing.err);
    let detail = Json::parse(r#"{"matched": 3}"#).unwrap();
    let why = Some("bad \u{202e}deploy".to_owned());
    let asked = NewAuditEntry::asked("ada", "tasks.retry", "status=failed", why, detail).unwrap();
    let id = store.audit(&asked).await.unwrap();
    let done = asked.ended(id, AuditOutcome::Done, Json::parse(r#"{"retried": 3}"#).unwrap());
    store.audit(&done).await.unwrap();
    let lost = NewAuditEntry::asked("eve", "queues.pause", "mail", None, Json::empty_object());
    store.audit(&lost.unwrap()).await.unwrap();

    let shown = place.ok(&["audit"]);
    let rows: Vec<&str> = shown.lines().collect();
    assert_eq!(rows.len(), 3, "the first entry is told by the second: {shown}");
    assert!(rows[1].contains("eve") && rows[1].contains("asked, no outcome"), "{shown}");
    for words in ["ada", "tasks.retry", "status=failed", "done", "retried", r"bad \u{202e}deploy"] {
        assert!(rows[2].contains(words), "{words}: {shown}");
    }
    let rows = lines(&place.ok(&["audit", "--json"]));
    let outcomes: Vec<&Value> = rows.iter().map(|row| &row["outcome"]).collect();
    assert_eq!(outcomes, ["asked", "done", "asked"]);
    assert_eq!((&rows[1]["of"], &rows[1]["detail"]["retried"]), (&json!(id), &json!(3)));
    let page = place.run(&["audit", "--limit", "1"]);
    assert!(page.err.contains("audit --limit 1 --before 3"), "{}", page.err);
    let rest = lines(&place.ok(&["audit", "--json", "--before", "2"]));
    assert_eq!((rest.len(), &rest[0]["id"]), (1, &json!(1)));
}

#[tokio::test(flavor = "multi_thread")]
async fn operators_on_an_embedded_database() {
    let place = Place::new();
    place.ok(&["migrate"]);
    let store = SqliteStore::open(place.path("task-engine.db")).unwrap();
    tokens_come_and_go(&place, &store).await;
    the_record_is_shown(&place, &store).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn operators_on_postgresql() {
    let url = TestServer::shared().create_database().await;
    let place = Place::with_database(&url);
    place.ok(&["migrate"]);
    let store = PgStore::connect(&url).await.unwrap();
    tokens_come_and_go(&place, &store).await;
    the_record_is_shown(&place, &store).await;
}

#[test]
fn what_cannot_be_meant_is_said() {
    let place = Place::new();
    place.ok(&["migrate"]);
    let long = "x".repeat(201);
    for (args, words) in [
        (&["tokens", "create", "a", "--role", "root"][..], "viewer, operator, admin"),
        (&["tokens", "create", "a"], "--role"),
        (&["tokens", "create", "", "--role", "viewer"], "1 to 200 bytes"),
        (&["tokens", "create", "a\nb", "--role", "viewer"], "control characters"),
        (&["tokens", "create", &long, "--role", "viewer"], "1 to 200 bytes"),
        (&["tokens", "create", "a", "--role", "viewer", "--expires", "0"], "expires after"),
        (&["tokens", "create", "a", "--role", "viewer", "--expires", "-1d"], "negative"),
        (&["tokens", "create", "a", "--role", "viewer", "--expires", "soon"], "not a duration"),
        (&["audit", "--limit", "0"], "1..=100000"),
        (&["audit", "--before", "x"], "--before"),
    ] {
        let finished = place.run(args);
        assert_eq!((finished.code, finished.out.as_str()), (Some(2), ""), "{args:?}");
        assert!(finished.err.contains(words), "{args:?}: {}", finished.err);
    }
    assert_eq!(place.ok(&["tokens", "list", "--json"]), "");
}
