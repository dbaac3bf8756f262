//! Runs every command and every statement of the documents, checks that their links, tests and
//! metrics exist, and checks the sentences of documents and doc comments.

mod names;
mod sentences;

use std::cell::RefCell;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use task_engine::postgres::PgStore;
use task_engine_test_harness::{TestServer, connect};

use super::support::sandbox;
use task_engine_test_harness::{RunningProgram, Sandbox, wait_until, wait_within};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The documents of the project, of its guide, and of its examples.
fn documents() -> Vec<PathBuf> {
    let mut documents = Vec::new();
    for folder in [root(), root().join("docs"), root().join("examples")] {
        let all = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
        documents.extend(all.filter(|path| path.extension().is_some_and(|end| end == "md")));
    }
    documents
}

/// Those, and the documents whose commands other tests run.
fn all_documents() -> Vec<PathBuf> {
    let others = ["clients/python", "clients/ruby", "clients/typescript", "bench/peers"];
    let others = others.map(|folder| root().join(folder).join("README.md"));
    let examples = ["fastapi", "express", "ruby"];
    let examples = examples.map(|name| root().join("examples").join(name).join("README.md"));
    documents().into_iter().chain(others).chain(examples).collect()
}

/// The fenced blocks, each with its language.
pub(crate) fn blocks(text: &str) -> Vec<(&str, String)> {
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
fn commands_in_documents_work() {
    let mut run = 0;
    for document in documents() {
        let mut document_run = DocumentRun::new();
        if document.ends_with("executables.md") {
            super::executables::copy_examples(&document_run.sandbox);
        }
        for (language, code) in blocks(&fs::read_to_string(&document).unwrap()) {
            let done = document_run.run_block(language, &code);
            run += done.unwrap_or_else(|why| panic!("{}: {why}", document.display()));
        }
        document_run.stop_all();
    }
    assert!(run > 150, "the documents have commands: {run}");
}

/// The name of a file in the comment that is its first line.
pub(crate) fn file_name(code: &str) -> Option<&str> {
    let name = code.lines().next()?.strip_prefix("# ")?;
    let is_file = [".toml", ".py", ".conf"].iter().any(|end| name.ends_with(end));
    (is_file && !name.contains(' ')).then_some(name)
}

/// Runs the blocks of one document, in its own folder.
struct DocumentRun {
    sandbox: Sandbox,
    /// Processes that are still running.
    started: Vec<RunningProgram>,
    /// The address of the dashboard that was started last.
    web: Option<String>,
    /// The database that replaces [`POSTGRES`], if the document uses it.
    postgres: Option<String>,
    /// What its commands have printed.
    printed: String,
    /// The last command of a shell.
    last: String,
}

/// All folders that documents name are beside the clone.
const CLONE: &str = "../task-engine";
/// The line before commands that follow a command which never returns.
const SECOND_TERMINAL: &str = "# In a second terminal:";
/// The PostgreSQL of the documents. Every document gets its own database instead.
const POSTGRES: &str = "postgres://localhost/tasks";
/// The dashboard of the documents. Tests use a free port instead.
const WEB: &str = "localhost:8642";
const ANY_PORT: &str = "127.0.0.1:0";
/// Fails if the answer has an error status.
const CURL: &str = "curl() { command curl --silent --show-error --fail-with-body \"$@\"; };";

impl DocumentRun {
    fn new() -> Self {
        let mut sandbox = sandbox();
        std::os::unix::fs::symlink(root().canonicalize().unwrap(), sandbox.path("task-engine"))
            .unwrap();
        fs::create_dir(sandbox.path("project")).unwrap();
        sandbox.enter("project");
        // Python finds the client beside the worker.
        let client = root().join("clients/python/src/task_engine").canonicalize().unwrap();
        std::os::unix::fs::symlink(client, sandbox.path("task_engine")).unwrap();
        Self {
            sandbox,
            started: Vec::new(),
            web: None,
            postgres: None,
            printed: String::new(),
            last: String::new(),
        }
    }

    /// Runs a block; returns the number of its commands.
    fn run_block(&mut self, language: &str, code: &str) -> Result<usize, String> {
        match language {
            "sh" => {
                let lines = || code.lines().filter(|line| *line != SECOND_TERMINAL);
                for line in lines() {
                    self.run_line(line)?;
                }
                return Ok(lines().count());
            }
            _ if language.ends_with(" output") => {
                self.check_output(code);
                return Ok(1);
            }
            // A file, with its name in the first line.
            "toml" | "python" if file_name(code).is_some_and(|name| !name.contains('/')) => {
                let name = file_name(code).unwrap_or_default();
                fs::write(self.sandbox.path(name), code).unwrap();
            }
            "python" if code.starts_with("# mailer.py\n") => {
                fs::write(self.sandbox.path("mailer.py"), code).unwrap();
            }
            "rust" if self.sandbox.path("src/main.rs").exists() => self.start_greeter(),
            "python" | "javascript" | "ruby" if code.contains(WEB) => {
                let web = self.web.as_ref().ok_or("there is no `task-engine web` before this")?;
                let code = code.replace(WEB, web);
                return self.run_program(language, &code, "");
            }
            "python" | "javascript" | "ruby" if code.contains(POSTGRES) => {
                let code = self.addressed(code);
                return match driver(language) {
                    Some(setting) => self.run_program(language, &code, &setting),
                    None => Ok(0),
                };
            }
            _ => {}
        }
        Ok(0)
    }

    /// A test of the examples runs the program of `docs/start.md`. Here another one
    /// does the same, for the commands that read its tasks.
    fn start_greeter(&mut self) {
        let class = "[class.greet]\ncommand = [\"echo\", \"1\"]\n";
        fs::write(self.sandbox.path("greeter.toml"), class).unwrap();
        self.sandbox.ok(&["create", "greet"]);
        self.start_engine("start --instance greeter --config greeter.toml");
    }

    /// Runs a program that creates a task and prints its id.
    fn run_program(&mut self, language: &str, code: &str, setting: &str) -> Result<usize, String> {
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

    /// A block like `text output` shows what a command before it has printed, or what an
    /// engine has logged. Numbers may differ, and `…` stands for any text.
    fn check_output(&mut self, code: &str) {
        let mut printed = self.printed.clone();
        let missing = RefCell::new(Vec::new());
        let is_shown = || {
            let logs: String = self.started.iter().map(RunningProgram::err).collect();
            let all = format!("{printed}{logs}");
            let is_missing = |line: &&str| !all.lines().any(|one| shows(one, line));
            missing.replace(code.lines().filter(is_missing).map(str::to_owned).collect());
            let is_shown = missing.borrow().is_empty();
            if !is_shown {
                // The last command may show what an engine does a moment later.
                printed = format!("{}{}", self.printed, self.sandbox.shell(&self.last).out);
            }
            is_shown
        };
        let details = || format!("missing: {:#?}\nprinted:\n{}", missing.take(), self.printed);
        wait_within(Duration::from_secs(20), "the output of the document", is_shown, details);
    }

    fn run_line(&mut self, line: &str) -> Result<(), String> {
        let line = self.addressed(&line.replacen("cargo run -- ", "task-engine ", 1));
        match line.split_once(' ') {
            Some(("task-engine", rest)) if rest.starts_with("start") => self.start_engine(rest),
            Some(("task-engine", rest)) if rest == "web" || rest.starts_with("web ") => {
                self.start_web(rest);
            }
            Some(("task-engine", rest)) => {
                if rest.starts_with("export >") {
                    // `export` refuses while an engine is alive.
                    self.stop_all();
                }
                self.run_shell(&line)?;
            }
            Some(("echo" | "psql", _)) => self.run_shell(&line)?,
            Some(("export", rest)) => {
                let (name, url) = rest.split_once('=').ok_or("export what?")?;
                assert_eq!(name, "TASK_ENGINE_DATABASE_URL");
                self.sandbox.use_database(url);
            }
            Some(("curl", _)) => self.run_curl(&line)?,
            Some(("cd", folder)) => self.sandbox.enter(folder),
            Some(("cargo", rest)) if rest.starts_with("new ") || rest.starts_with("add ") => {
                if rest.starts_with("new ") {
                    // Beside the clone.
                    self.sandbox.enter("..");
                }
                // The packages are in the cache of cargo, because this program needs them.
                self.run_shell(&format!("CARGO_NET_OFFLINE=true {line}"))?;
            }
            Some(("venv/bin/pip", rest)) => self.install_with_pip(rest)?,
            Some(("python3", "-m venv venv")) => {
                self.run_shell(&format!("{line} --without-pip"))?;
            }
            _ if line.contains("cargo ") => names::is_built(&line)?,
            _ => return Err(format!("unknown command: {line}")),
        }
        Ok(())
    }

    /// The tests of the client install it with pip. Here it is beside the worker.
    fn install_with_pip(&self, arguments: &str) -> Result<(), String> {
        let package = arguments.strip_prefix("install ").filter(|it| it.starts_with(CLONE));
        let package = package.ok_or_else(|| format!("not a package: {arguments}"))?;
        let file = self.sandbox.path(package).join("pyproject.toml");
        if file.exists() { Ok(()) } else { Err(format!("there is no {}", file.display())) }
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

    fn start_engine(&mut self, command: &str) {
        let mut words: Vec<&str> = command.split_whitespace().collect();
        if let Some(at) = words.iter().position(|word| *word == "--web") {
            words.insert(at + 1, ANY_PORT);
        }
        if let Some(at) = words.iter().position(|word| *word == "--listen") {
            words[at + 1] = ANY_PORT;
        }
        let engine = self.sandbox.start_exact(&words);
        engine.wait_for_log("started with");
        // Its task ends before the next command.
        let database = words.iter().position(|word| *word == "--database");
        let database = database.map_or(&[][..], |at| &words[at..at + 2]);
        let show = [&["show", "1", "--json"], database].concat();
        wait_until("the task ends", || self.sandbox.ok(&show).contains("\"status\":\"stopped\""));
        self.started.push(engine);
    }

    fn start_web(&mut self, command: &str) {
        let mut words: Vec<&str> = command.split_whitespace().collect();
        words.insert(1, ANY_PORT);
        let server = self.sandbox.start(&words);
        server.wait_for_log("/\n");
        let said = server.err();
        let (_, url) = said.rsplit_once("Dashboard: http://").unwrap();
        self.web = url.lines().next().map(|url| url.trim_end_matches('/').to_owned());
        self.started.push(server);
    }

    /// `# exit code 4` behind a command is the expected exit code.
    fn run_shell(&mut self, line: &str) -> Result<(), String> {
        let done = self.sandbox.shell(line);
        self.printed += &format!("{}{}", done.out, done.err);
        line.clone_into(&mut self.last);
        let code = line.rsplit_once("# exit code ").map_or("0", |(_, code)| code);
        let fits = done.code.is_some_and(|done| done.to_string() == code);
        if fits { Ok(()) } else { Err(format!("{line}: {done:?}")) }
    }

    /// `# 400` behind a request is the expected status.
    fn run_curl(&mut self, line: &str) -> Result<(), String> {
        let web = self.web.as_ref().ok_or("there is no `task-engine web` before this")?;
        let done = self.sandbox.shell(&format!("{CURL} {}", line.replace(WEB, web)));
        self.printed += &format!("{}\n", done.out);
        let refusal = line.rsplit_once("# ").map(|(_, status)| format!("\"status\":{status},"));
        let fits = match &refusal {
            Some(status) => done.code == Some(22) && done.out.contains(status),
            None => done.code == Some(0) && !done.out.is_empty(),
        };
        if fits { Ok(()) } else { Err(format!("{line}: {done:?}")) }
    }

    fn stop_all(&mut self) {
        for one in self.started.drain(..) {
            one.signal("TERM");
            assert_eq!(one.end().code, Some(0));
        }
    }
}

/// Whether a printed line is the documented one, apart from numbers and spaces.
fn shows(printed: &str, documented: &str) -> bool {
    let printed = without_numbers(printed);
    let mut rest = printed.as_str();
    documented.split('…').map(without_numbers).all(|part| match rest.split_once(part.as_str()) {
        Some((_, after)) => {
            rest = after;
            true
        }
        None => false,
    })
}

fn without_numbers(line: &str) -> String {
    let mut text = String::new();
    for c in line.chars().filter(|c| !c.is_whitespace()) {
        match c {
            '0'..='9' if text.ends_with('0') => {}
            '0'..='9' => text.push('0'),
            _ => text.push(c),
        }
    }
    text
}

/// The setting by which a program of this language finds its driver for PostgreSQL,
/// or `None` without a driver. `./test` installs all of them into `target/drivers`
/// and sets this variable: then none may be missing.
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
        // Node searches modules beside the file, not in NODE_PATH.
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

/// The page `docs/start.md` lets its reader kill an engine, for less time here.
#[test]
fn killed_engine_of_the_start_page_is_recovered() {
    let text = fs::read_to_string(root().join("docs/start.md")).unwrap();
    let (_, section) = text.split_once("## When an engine dies").unwrap();
    let [(_, file), (_, commands), ..] = &blocks(section)[..] else { panic!("{section}") };
    let sandbox = sandbox();
    fs::write(sandbox.path("task-engine.toml"), file.replace("sleep 30", "sleep 3")).unwrap();
    let commands = commands.replace("sleep 5", "sleep 2");
    let commands = commands.strip_suffix("\ntask-engine start").expect("the second engine");
    let done = sandbox.shell(commands);
    assert_eq!(done.code, Some(0), "{done:?}");
    let engine = sandbox.start_exact(&["start"]);
    let waited = sandbox.run(&["wait", "1", "--timeout", "30s"]);
    assert_eq!(waited.code, Some(0), "{waited:?}");
    assert_eq!(sandbox.task("1")["executions"].as_array().map(Vec::len), Some(2));
    engine.signal("TERM");
    assert_eq!(engine.end().code, Some(0));
}

/// A reader who pastes a block would wait for the end of the engine.
#[test]
fn commands_after_an_engine_have_a_second_terminal() {
    for document in all_documents() {
        let text = fs::read_to_string(&document).unwrap();
        for (_, code) in blocks(&text).iter().filter(|(language, _)| *language == "sh") {
            let mut is_blocked = false;
            for line in code.lines() {
                if line == SECOND_TERMINAL {
                    assert!(is_blocked, "{}: the first is free:\n{code}", document.display());
                    is_blocked = false;
                    continue;
                }
                assert!(!is_blocked, "{}: before {line:?}: {SECOND_TERMINAL}", document.display());
                let command = line.trim_start_matches("task-engine ");
                let stays = ["start", "web", "top"].contains(&command.split(' ').next().unwrap());
                is_blocked = stays && command != line || line == "cargo run -- demo";
            }
        }
    }
}

#[test]
fn statements_in_documents_work() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let mut run = 0;
    for document in documents() {
        let text = fs::read_to_string(&document).unwrap();
        for (_, block) in blocks(&text).into_iter().filter(|(language, _)| *language == "sql") {
            run += 1;
            runtime.block_on(async {
                let url = TestServer::shared().create_database().await;
                PgStore::connect(&url).await.unwrap().migrate().await.unwrap();
                let client = connect(&url).await;
                // One by one: CREATE DATABASE refuses others beside it.
                for statement in block.split(";\n") {
                    let done = client.batch_execute(statement).await;
                    done.unwrap_or_else(|e| panic!("{}: {e:?}\n{statement}", document.display()));
                }
            });
        }
    }
    assert!(run >= 2, "the documents have statements");
}
