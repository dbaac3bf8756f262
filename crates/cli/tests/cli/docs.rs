//! Every command and every statement in the documents is run, every link leads
//! somewhere, and every test that is named is there.

mod names;

use std::fs;
use std::path::{Path, PathBuf};

use task_engine::Store;
use task_engine::postgres::{PgStore, tokio_postgres};
use task_engine_conformance::TestServer;

use super::support::{Place, Running, eventually};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Those of the project, then those of its guide.
fn documents() -> Vec<PathBuf> {
    let mut documents = Vec::new();
    for folder in [root(), root().join("docs")] {
        let all = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
        documents.extend(all.filter(|path| path.extension().is_some_and(|end| end == "md")));
    }
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
        let mut reader = Reader::new();
        if document.ends_with("executables.md") {
            super::executables::copy_examples(&reader.place);
        }
        for block in blocks(&fs::read_to_string(&document).unwrap(), "sh") {
            for line in block.lines() {
                reader.types(line).unwrap_or_else(|why| panic!("{}: {why}", document.display()));
                run += 1;
            }
        }
        reader.leaves();
    }
    assert!(run > 10, "the documents have commands");
}

/// Somebody who types what a document says, in a folder of their own.
struct Reader {
    place: Place,
    /// What was started and goes on.
    started: Vec<Running>,
    /// Where the dashboard is that was started last.
    web: Option<String>,
}

/// Where documents have the dashboard. Here it gets a port that nobody else has.
const WEB: &str = "localhost:8642";
const ANY_PORT: &str = "127.0.0.1:0";
/// An answer that is an error is an error.
const CURL: &str = "curl() { command curl --silent --show-error --fail-with-body \"$@\"; };";

impl Reader {
    fn new() -> Self {
        Self { place: Place::new(), started: Vec::new(), web: None }
    }

    fn types(&mut self, line: &str) -> Result<(), String> {
        let line = line.replacen("cargo run -- ", "task-engine ", 1);
        match line.split_once(' ') {
            Some(("task-engine", rest)) if rest.starts_with("start") => self.starts(rest),
            Some(("task-engine", rest)) if rest == "web" || rest.starts_with("web ") => {
                self.serves(rest);
            }
            Some(("task-engine", _)) => self.runs(&line)?,
            Some(("curl", _)) => self.asks(&line)?,
            _ => return Err(format!("nobody knows what this is: {line}")),
        }
        Ok(())
    }

    fn starts(&mut self, command: &str) {
        let mut words: Vec<&str> = command.split_whitespace().collect();
        if let Some(at) = words.iter().position(|word| *word == "--web") {
            words.insert(at + 1, ANY_PORT);
        }
        let engine = self.place.start(&words);
        engine.says("started with");
        // What it found is done before the reader goes on.
        eventually("the task ends", || self.place.status("1") == "stopped");
        self.started.push(engine);
    }

    fn serves(&mut self, command: &str) {
        let mut words: Vec<&str> = command.split_whitespace().collect();
        words.insert(1, ANY_PORT);
        let server = self.place.start(&words);
        server.says("/\n");
        let said = server.err();
        let (_, url) = said.rsplit_once("Dashboard: http://").unwrap();
        self.web = url.lines().next().map(|url| url.trim_end_matches('/').to_owned());
        self.started.push(server);
    }

    fn runs(&self, line: &str) -> Result<(), String> {
        let done = self.place.shell(line);
        if done.code == Some(0) { Ok(()) } else { Err(format!("{line}: {done:?}")) }
    }

    /// `# 400` behind a request: that is the answer which the document tells of.
    fn asks(&self, line: &str) -> Result<(), String> {
        let web = self.web.as_ref().ok_or("there is no `task-engine web` before this")?;
        let done = self.place.shell(&format!("{CURL} {}", line.replace(WEB, web)));
        let refusal = line.rsplit_once("# ").map(|(_, status)| format!("\"status\":{status},"));
        let fits = match &refusal {
            Some(status) => done.code == Some(22) && done.out.contains(status),
            None => done.code == Some(0) && !done.out.is_empty(),
        };
        if fits { Ok(()) } else { Err(format!("{line}: {done:?}")) }
    }

    fn leaves(self) {
        for one in self.started {
            one.signal("TERM");
            assert_eq!(one.end().code, Some(0));
        }
    }
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
