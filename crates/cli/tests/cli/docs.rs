//! Every command and every statement in the documents is run.

use std::fs;
use std::path::{Path, PathBuf};

use task_engine::Store;
use task_engine::postgres::{PgStore, tokio_postgres};
use task_engine_conformance::TestServer;

use super::support::{Place, Running, eventually};

fn documents() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut documents = vec![root.join("README.md")];
    for entry in fs::read_dir(root.join("docs")).unwrap() {
        documents.push(entry.unwrap().path());
    }
    documents.retain(|path| path.extension().is_some_and(|end| end == "md"));
    documents
}

/// The fenced blocks of one language.
fn blocks(text: &str, language: &str) -> Vec<String> {
    let fence = format!("```{language}\n");
    let parts = text.split(&fence).skip(1);
    parts.map(|part| part.split("\n```").next().unwrap_or_default().to_owned()).collect()
}

#[test]
fn every_command_in_the_documents_works() {
    let mut run = 0;
    for document in documents() {
        // One folder a document, as a reader would have.
        let place = Place::new();
        if document.ends_with("executables.md") {
            super::executables::copy_examples(&place);
        }
        let mut engines: Vec<Running> = Vec::new();
        for line in
            blocks(&fs::read_to_string(&document).unwrap(), "sh").iter().flat_map(|b| b.lines())
        {
            let command = line.strip_prefix("cargo run -- ").or(line.strip_prefix("task-engine "));
            let command = command.unwrap_or_else(|| panic!("{}: {line}", document.display()));
            let words = words(command);
            let words: Vec<&str> = words.iter().map(String::as_str).collect();
            run += 1;
            if words[0] == "start" {
                let engine = place.start(&words);
                engine.says("started with");
                // What it found is done before the reader goes on.
                eventually("the task ends", || place.status("1") == "stopped");
                engines.push(engine);
            } else {
                place.ok(&words);
            }
        }
        for engine in engines {
            engine.signal("TERM");
            assert_eq!(engine.end().code, Some(0));
        }
    }
    assert!(run > 10, "the documents have commands");
}

#[test]
fn every_statement_in_the_documents_works() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let mut run = 0;
    for document in documents() {
        for block in blocks(&fs::read_to_string(&document).unwrap(), "sql") {
            run += 1;
            runtime.block_on(async {
                let url = TestServer::shared().create_database().await;
                PgStore::connect(&url).await.unwrap().migrate().await.unwrap();
                let (client, connection) =
                    tokio_postgres::connect(&url, tokio_postgres::NoTls).await.unwrap();
                tokio::spawn(connection);
                let done = client.batch_execute(&block).await;
                done.unwrap_or_else(|e| panic!("{}: {e:?}\n{block}", document.display()));
            });
        }
    }
    assert!(run >= 2, "the documents have statements");
}

/// Every file that a document points to is there.
#[test]
fn no_link_is_dead() {
    for document in documents() {
        let text = fs::read_to_string(&document).unwrap();
        for link in text.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            if link.starts_with("http") || link.starts_with('#') {
                continue;
            }
            let target = document.parent().unwrap().join(link.split('#').next().unwrap());
            assert!(target.exists(), "{}: {link}", document.display());
        }
    }
}

/// Words as a shell has them: single quotes keep what is inside together.
fn words(line: &str) -> Vec<String> {
    let mut words = Vec::new();
    for (n, part) in line.split('\'').enumerate() {
        if n % 2 == 1 {
            words.push(part.to_owned());
        } else {
            words.extend(part.split_whitespace().map(str::to_owned));
        }
    }
    words
}
