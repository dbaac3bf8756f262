//! Compiles the Rust code of the documents: `start` is the program of
//! `docs/start.md`, and each document becomes a function of `tests/documents.rs`.
//!
//! A block may use what the blocks above it declare, so each block is nested in the
//! one before. Every block also gets a store, its tasks and a connection, so that the
//! document need not declare them.

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::{env, fs};

fn main() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let made = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets it"));
    let mut tests = String::new();
    for document in documents(&root) {
        println!("cargo::rerun-if-changed={}", document.display());
        let text = fs::read_to_string(&document).expect("a text");
        let blocks = blocks(&text);
        if document.ends_with("docs/start.md") {
            let program = &blocks.first().expect("it has a program").code;
            fs::write(made.join("start.rs"), program).expect("a file");
        }
        if !blocks.is_empty() {
            tests += &test(&document, &blocks);
        }
    }
    println!("cargo::rerun-if-changed={}", root.join("docs").display());
    fs::write(made.join("documents.rs"), tests).expect("a file");
}

fn documents(root: &Path) -> Vec<PathBuf> {
    let pages = fs::read_dir(root.join("docs")).expect("the folder of documents");
    let pages = pages.map(|entry| entry.expect("a file").path());
    let mut documents: Vec<_> =
        pages.filter(|page| page.extension().is_some_and(|end| end == "md")).collect();
    documents.push(root.join("README.md"));
    documents.sort();
    documents
}

struct Block {
    line: usize,
    code: String,
    /// If not, it is only compiled.
    runs: bool,
}

fn blocks(text: &str) -> Vec<Block> {
    let mut blocks = Vec::new();
    let mut lines = text.lines().enumerate();
    while let Some((line, fence)) = lines.next() {
        let runs = match fence {
            "```rust" => true,
            "```rust,no_run" => false,
            _ => continue,
        };
        let code = lines.by_ref().map(|(_, line)| line).take_while(|line| *line != "```");
        let code = code.fold(String::new(), |code, line| code + line + "\n");
        blocks.push(Block { line: line + 2, code, runs });
    }
    blocks
}

fn test(document: &Path, blocks: &[Block]) -> String {
    let name = document.file_stem().and_then(|name| name.to_str()).expect("a name");
    let name = name.to_lowercase().replace('-', "_");
    let mut code = format!(
        "#[tokio::test(flavor = \"multi_thread\")]\nasync fn {name}() -> Result<(), Error> {{\n\
         let scene = Scene::new().await;\n"
    );
    for block in blocks {
        let place = format!("// {}, line {}", document.display(), block.line);
        let body = called(&block.code);
        let given = "let (store, tasks, mut db) = scene.given().await;";
        let _ = if block.runs {
            write!(code, "{{ {place}\n{given}\n{body}")
        } else {
            let end = "Ok::<(), Error>(()) };";
            write!(code, "{{ {place}\nlet _not_run = async {{\n{given}\n{body}\n{end}\n")
        };
        if block.runs && block.code.contains("\nlet engine =") {
            code += "starts(engine).await?;\n";
        }
    }
    code + &"}".repeat(blocks.len()) + "\nOk(()) }\n"
}

/// Adds calls of the tests that a document declares.
fn called(code: &str) -> String {
    let mark = "#[tokio::test]\nasync fn ";
    let names = code.split(mark).skip(1).filter_map(|rest| rest.split('(').next());
    let calls: String = names.map(|name| format!("{name}().await;\n")).collect();
    code.replace(mark, "async fn ") + &calls
}
