//! Every command and every statement in the documents is run, every link leads
//! somewhere, and every test that is named is there.

mod names;

use std::fs;
use std::path::{Path, PathBuf};

use task_engine::postgres::{PgStore, tokio_postgres};
use task_engine_test_harness::TestServer;

use super::support::sandbox;
use task_engine_test_harness::{RunningProgram, Sandbox, wait_until};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Those of the project, of its guide, and of its examples.
fn documents() -> Vec<PathBuf> {
    let mut documents = Vec::new();
    for folder in [root(), root().join("docs"), root().join("examples")] {
        let all = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
        documents.extend(all.filter(|path| path.extension().is_some_and(|end| end == "md")));
    }
    documents
}

/// The fenced blocks, each with its language.
fn blocks(text: &str) -> Vec<(&str, String)> {
    let mut blocks = Vec::new();
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        if let Some(language) = line.strip_prefix("```") {
            let code: Vec<_> = lines.by_ref().take_while(|line| *line != "```").collect();
            blocks.push((language, code.join("\n")));
        }
    }
    blocks
}

#[test]
fn every_command_in_the_documents_works() {
    let mut run = 0;
    for document in documents() {
        let mut reader = Reader::new();
        if document.ends_with("executables.md") {
            super::executables::copy_examples(&reader.sandbox);
        }
        for (language, code) in blocks(&fs::read_to_string(&document).unwrap()) {
            let done = reader.meets(language, &code);
            run += done.unwrap_or_else(|why| panic!("{}: {why}", document.display()));
        }
        reader.leaves();
    }
    assert!(run > 150, "the documents have commands: {run}");
}

/// Somebody who types what a document says, in a folder of their own.
struct Reader {
    sandbox: Sandbox,
    /// What was started and goes on.
    started: Vec<RunningProgram>,
    /// Where the dashboard is that was started last.
    web: Option<String>,
    /// The database in [`POSTGRES`]'s sandbox, if the document has one.
    postgres: Option<String>,
}

/// Where documents have PostgreSQL. Here every reader gets a database of its own.
const POSTGRES: &str = "postgres://localhost/tasks";
/// Where documents have the dashboard. Here it gets a port that nobody else has.
const WEB: &str = "localhost:8642";
const ANY_PORT: &str = "127.0.0.1:0";
/// An answer that is an error is an error.
const CURL: &str = "curl() { command curl --silent --show-error --fail-with-body \"$@\"; };";

impl Reader {
    fn new() -> Self {
        Self { sandbox: sandbox(), started: Vec::new(), web: None, postgres: None }
    }

    /// What a reader does with a block; says how many commands that were.
    fn meets(&mut self, language: &str, code: &str) -> Result<usize, String> {
        match language {
            "sh" => {
                for line in code.lines() {
                    self.types(line)?;
                }
                return Ok(code.lines().count());
            }
            "toml" if code.starts_with("# task-engine.toml\n") => {
                fs::write(self.sandbox.path("task-engine.toml"), code).unwrap();
            }
            "rust" if code.contains("SqliteStore::open(\"tasks.db\")") => self.greets(),
            "python" | "javascript" | "ruby" if code.contains(WEB) => {
                let web = self.web.as_ref().ok_or("there is no `task-engine web` before this")?;
                let code = code.replace(WEB, web);
                return self.runs_program(language, &code, "");
            }
            "python" | "javascript" | "ruby" if code.contains(POSTGRES) => {
                let code = self.addressed(code);
                return match driver(language) {
                    Some(setting) => self.runs_program(language, &code, &setting),
                    None => Ok(0),
                };
            }
            _ => {}
        }
        Ok(0)
    }

    /// The program of the first chapter is run by a test of the examples. Here
    /// another one does the same work, for the commands that look at it.
    fn greets(&mut self) {
        let class = "[class.greet]\ncommand = [\"echo\", \"1\"]\n";
        fs::write(self.sandbox.path("greeter.toml"), class).unwrap();
        let database = ["--database", "sqlite:tasks.db"];
        self.sandbox.ok(&[&["create", "greet"], &database[..]].concat());
        self.starts("start --instance greeter --config greeter.toml --database sqlite:tasks.db");
    }

    /// A program that creates a task, and prints its id.
    fn runs_program(&mut self, language: &str, code: &str, setting: &str) -> Result<usize, String> {
        let (program, file) = match language {
            "python" => ("python3", "program.py"),
            "javascript" => ("node", "program.mjs"),
            _ => ("ruby", "program.rb"),
        };
        if !super::executables::is_here(program) {
            return Ok(0);
        }
        fs::write(self.sandbox.path(file), code).unwrap();
        let done = self.sandbox.shell(&format!("{setting} {program} {file}"));
        let id = done.out.trim();
        if done.code != Some(0) || self.sandbox.run(&["show", id]).code != Some(0) {
            return Err(format!("{code}: {done:?}"));
        }
        Ok(1)
    }

    fn types(&mut self, line: &str) -> Result<(), String> {
        let line = self.addressed(&line.replacen("cargo run -- ", "task-engine ", 1));
        match line.split_once(' ') {
            Some(("task-engine", rest)) if rest.starts_with("start") => self.starts(rest),
            Some(("task-engine", rest)) if rest == "web" || rest.starts_with("web ") => {
                self.serves(rest);
            }
            Some(("task-engine", rest)) => {
                if rest.starts_with("export >") {
                    // Whoever moves a database stops its engines first.
                    self.leaves();
                }
                self.runs(&line)?;
            }
            Some(("echo" | "psql", _)) => self.runs(&line)?,
            Some(("export", rest)) => {
                let (name, url) = rest.split_once('=').ok_or("export what?")?;
                assert_eq!(name, "TASK_ENGINE_DATABASE_URL");
                self.sandbox.use_database(url);
            }
            Some(("curl", _)) => self.asks(&line)?,
            _ if line.contains("cargo ") => names::is_built(&line)?,
            _ => return Err(format!("nobody knows what this is: {line}")),
        }
        Ok(())
    }

    fn addressed(&mut self, line: &str) -> String {
        if !line.contains(POSTGRES) {
            return line.to_owned();
        }
        let url = self.postgres.get_or_insert_with(|| {
            let runtime = tokio::runtime::Runtime::new().unwrap();
            runtime.block_on(TestServer::shared().create_database())
        });
        line.replace(POSTGRES, url)
    }

    fn starts(&mut self, command: &str) {
        let mut words: Vec<&str> = command.split_whitespace().collect();
        if let Some(at) = words.iter().position(|word| *word == "--web") {
            words.insert(at + 1, ANY_PORT);
        }
        let engine = self.sandbox.start(&words);
        engine.wait_for_log("started with");
        // What it found is done before the reader goes on.
        let database = words.iter().position(|word| *word == "--database");
        let database = database.map_or(&[][..], |at| &words[at..at + 2]);
        let show = [&["show", "1", "--json"], database].concat();
        wait_until("the task ends", || self.sandbox.ok(&show).contains("\"status\":\"stopped\""));
        self.started.push(engine);
    }

    fn serves(&mut self, command: &str) {
        let mut words: Vec<&str> = command.split_whitespace().collect();
        words.insert(1, ANY_PORT);
        let server = self.sandbox.start(&words);
        server.wait_for_log("/\n");
        let said = server.err();
        let (_, url) = said.rsplit_once("Dashboard: http://").unwrap();
        self.web = url.lines().next().map(|url| url.trim_end_matches('/').to_owned());
        self.started.push(server);
    }

    /// `# exit code 4` behind a command: that is what the document tells of.
    fn runs(&self, line: &str) -> Result<(), String> {
        let done = self.sandbox.shell(line);
        let code = line.rsplit_once("# exit code ").map_or("0", |(_, code)| code);
        let fits = done.code.is_some_and(|done| done.to_string() == code);
        if fits { Ok(()) } else { Err(format!("{line}: {done:?}")) }
    }

    /// `# 400` behind a request: that is the answer which the document tells of.
    fn asks(&self, line: &str) -> Result<(), String> {
        let web = self.web.as_ref().ok_or("there is no `task-engine web` before this")?;
        let done = self.sandbox.shell(&format!("{CURL} {}", line.replace(WEB, web)));
        let refusal = line.rsplit_once("# ").map(|(_, status)| format!("\"status\":{status},"));
        let fits = match &refusal {
            Some(status) => done.code == Some(22) && done.out.contains(status),
            None => done.code == Some(0) && !done.out.is_empty(),
        };
        if fits { Ok(()) } else { Err(format!("{line}: {done:?}")) }
    }

    fn leaves(&mut self) {
        for one in self.started.drain(..) {
            one.signal("TERM");
            assert_eq!(one.end().code, Some(0));
        }
    }
}

/// What a program of this language needs to find its driver for PostgreSQL, or
/// nothing if there is none. `./test` installs all of them into `target/drivers`,
/// and says so by this variable: then none may be missing.
fn driver(language: &str) -> Option<String> {
    let folder = std::env::var("TASK_ENGINE_TEST_DRIVERS").map(PathBuf::from);
    let all = folder.is_ok();
    let folder = folder.unwrap_or_else(|_| root().join("target/drivers"));
    let path = |inner: &str| folder.join(inner).display().to_string();
    let (setting, probe) = match language {
        "python" => {
            let setting = format!("PYTHONPATH='{}'", path("python"));
            (setting, r#"python3 -c 'import psycopg'"#)
        }
        // Modules are looked for from the file on, and not by NODE_PATH.
        "javascript" => {
            let modules = path("node/node_modules");
            (format!("ln -sfn '{modules}' node_modules;"), r#"node -e 'import("pg")'"#)
        }
        _ => {
            (format!("GEM_PATH='{}':$(gem env gempath)", path("ruby")), r#"ruby -e 'require "pg"'"#)
        }
    };
    let there = sandbox().shell(&format!("{setting} {probe}")).code == Some(0);
    assert!(there || !all, "the driver of {language} is missing in {}", folder.display());
    there.then_some(setting)
}

#[test]
fn every_statement_in_the_documents_works() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let mut run = 0;
    for document in documents() {
        let text = fs::read_to_string(&document).unwrap();
        for (_, block) in blocks(&text).into_iter().filter(|(language, _)| *language == "sql") {
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
