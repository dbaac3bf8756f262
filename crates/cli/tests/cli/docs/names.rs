//! Files, headings, tests and metrics that documents name exist.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use super::{all_documents, blocks, documents, root};
use crate::support::sandbox;

#[test]
fn links_are_valid() {
    for document in all_documents() {
        let text = fs::read_to_string(&document).unwrap();
        for link in text.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            if link.starts_with("http") {
                continue;
            }
            let (file, heading) = link.split_once('#').unwrap_or((link, ""));
            let target = match file {
                "" => document.clone(),
                file => document.parent().unwrap().join(file),
            };
            assert!(target.exists(), "{}: {link}", document.display());
            if !heading.is_empty() {
                let known = anchors(&fs::read_to_string(&target).unwrap());
                assert!(known.contains(heading), "{}: {link} of {known:?}", document.display());
            }
        }
    }
}

/// The anchors of the headings of a document.
fn anchors(text: &str) -> BTreeSet<String> {
    let mut in_block = false;
    let mut anchors = BTreeSet::new();
    for line in text.lines() {
        in_block ^= line.starts_with("```");
        let heading = line.trim_start_matches('#');
        if in_block || heading.len() == line.len() || !heading.starts_with(' ') {
            continue;
        }
        let kept = heading.trim().to_lowercase();
        let kept = kept.chars().filter(|c| c.is_alphanumeric() || " -_".contains(*c));
        anchors.insert(kept.map(|c| if c == ' ' { '-' } else { c }).collect());
    }
    anchors
}

#[test]
fn headings_have_anchors() {
    let text = "# One, two\n```sh\n# no\n```\n## `three` of 4\n#five\n";
    assert_eq!(anchors(text), BTreeSet::from(["one-two".to_owned(), "three-of-4".to_owned()]));
}

/// Every page is in the table of contents, begins with what its reader can do
/// after it, and ends with a link to the next.
#[test]
fn guide_is_in_order() {
    let contents = fs::read_to_string(root().join("docs/README.md")).unwrap();
    let links = contents.lines().filter(|line| line.starts_with(|c: char| c.is_ascii_digit()));
    let mut chapters: Vec<_> = links.map(|line| link(line).expect("a link")).collect();
    let listed: BTreeSet<_> =
        chapters.iter().map(|(_, file)| root().join("docs").join(file)).collect();
    let there = documents().into_iter().filter(|path| path.parent().unwrap().ends_with("docs"));
    let there: BTreeSet<_> = there.filter(|path| !path.ends_with("README.md")).collect();
    assert_eq!(listed, there);

    chapters.push(("Architecture", "../ARCHITECTURE.md"));
    for pair in chapters.windows(2) {
        let (_, file) = pair[0];
        let text = fs::read_to_string(root().join("docs").join(file)).unwrap();
        let last = text.lines().last().unwrap();
        assert!(last.starts_with("Next: ") && link(last) == Some(pair[1]), "{file}: {last}");
        let head = text.lines().nth(2).unwrap();
        assert!(head.starts_with("After reading this page you can "), "{file}: {head}");
    }
}

/// The first link of a line: its text and its target.
fn link(line: &str) -> Option<(&str, &str)> {
    let (_, rest) = line.split_once('[')?;
    let (says, rest) = rest.split_once("](")?;
    Some((says, rest.split_once(')')?.0))
}

/// Checks that the package and the program of a cargo command exist. Other tests run
/// the programs.
pub(super) fn is_built(line: &str) -> Result<(), String> {
    let words: Vec<_> = line.split_whitespace().collect();
    let after = |option: &str| {
        let at = words.iter().position(|word| *word == option)?;
        words.get(at + 1).copied()
    };
    let folder = match (after("--path"), after("-p")) {
        (Some(folder), _) => root().join(folder),
        (_, Some("task-engine-examples")) => root().join("examples/rust"),
        (_, Some("task-engine-shop")) => root().join("examples/shop"),
        (_, Some("task-engine-bench")) => root().join("bench"),
        (_, Some(package)) => root().join("crates").join(package.replace("task-engine-", "")),
        _ => return Err(format!("unknown package: {line}")),
    };
    let manifest =
        fs::read_to_string(folder.join("Cargo.toml")).map_err(|e| format!("{line}: {e}"))?;
    let is_there = match (after("--bin"), after("--example")) {
        (Some(bin), _) => manifest.contains(&format!("[[bin]]\nname = \"{bin}\"")),
        (_, Some(example)) => folder.join(format!("examples/{example}.rs")).exists(),
        _ => true,
    };
    if is_there { Ok(()) } else { Err(format!("{line}: there is no such program")) }
}

/// No registry has the crates yet: documents name them by the path of the clone, with features
/// that exist, and with all that their examples use.
#[test]
fn dependencies_in_documents_exist() {
    let mut found = 0;
    for document in documents() {
        let text = fs::read_to_string(&document).unwrap();
        let is_manifest = |code: &String| code.contains("dependencies]\n");
        let manifests = blocks(&text).into_iter().map(|(_, code)| code).filter(is_manifest);
        for manifest in manifests {
            let read: toml::Table = manifest.parse().unwrap();
            for (kind, dependencies) in &read {
                let dependencies = dependencies.as_table().unwrap();
                let all = ["serde", "task-engine", "tokio"];
                let has_all = all.iter().all(|name| dependencies.contains_key(*name));
                assert!(has_all || kind != "dependencies", "{}:\n{manifest}", document.display());
                for (name, dependency) in dependencies {
                    if name.starts_with("task-engine") {
                        exists(dependency, &document);
                        found += 1;
                    }
                }
            }
        }
    }
    assert!(found > 2, "{found}");
}

fn exists(dependency: &toml::Value, document: &Path) {
    let path = dependency.get("path").and_then(toml::Value::as_str).unwrap_or_default();
    let folder = path.strip_prefix("../task-engine/");
    let folder = folder.unwrap_or_else(|| panic!("{}: {dependency}", document.display()));
    let manifest = fs::read_to_string(root().join(folder).join("Cargo.toml")).unwrap();
    let manifest: toml::Table = manifest.parse().unwrap();
    let features = dependency.get("features").and_then(toml::Value::as_array);
    for feature in features.into_iter().flatten() {
        let known = manifest["features"].get(feature.as_str().unwrap_or_default());
        assert!(known.is_some(), "{}: no feature {feature}", document.display());
    }
}

/// Commands within sentences and tables exist.
#[test]
fn commands_in_sentences_exist() {
    let sandbox = sandbox();
    let mut known = BTreeSet::new();
    for document in documents() {
        let text = fs::read_to_string(&document).unwrap();
        for code in text.lines().filter(|line| !line.starts_with("```")).flat_map(in_backquotes) {
            if code.starts_with("cargo ") && code.contains(" -p ") {
                is_built(code).unwrap_or_else(|why| panic!("{}: {why}", document.display()));
            }
            let Some(rest) = code.strip_prefix("task-engine ") else { continue };
            let Some(command) = rest.split_whitespace().next() else { continue };
            // Only the engine uses this one; it has no help.
            let is_hidden = command == "supervise-executable";
            if is_hidden || command.starts_with('-') || !known.insert(command.to_owned()) {
                continue;
            }
            let helped = sandbox.run(&[command, "--help"]);
            assert_eq!(helped.code, Some(0), "{}: {code}: {}", document.display(), helped.err);
        }
    }
    assert!(known.len() > 10, "{known:?}");
}

/// Commands that no test runs, because they need other machines, have known arguments.
#[test]
fn other_commands_have_known_arguments() {
    let mut known = 0;
    for document in documents() {
        let text = fs::read_to_string(&document).unwrap();
        let blocks = blocks(&text).into_iter().filter(|(language, _)| *language == "bash");
        for line in blocks.flat_map(|(_, code)| code.lines().map(str::to_owned).collect::<Vec<_>>())
        {
            let line = line.trim_end_matches(" &");
            // Variables may come before the program.
            let is_variable = |word: &&str| word.contains('=');
            let mut words = line.split_whitespace().skip_while(is_variable);
            if words.next() != Some("task-engine") {
                continue;
            }
            let arguments: Vec<_> = words.chain(["--help"]).collect();
            let helped = sandbox().run(&arguments);
            assert_eq!(helped.code, Some(0), "{}: {line}: {}", document.display(), helped.err);
            known += 1;
        }
    }
    assert!(known > 3, "{known}");
}

fn in_backquotes(line: &str) -> impl Iterator<Item = &str> {
    line.split('`').skip(1).step_by(2)
}

/// For `crates/a/src/b.rs::name` in backquotes, a test with this name is in this file.
#[test]
fn named_tests_exist() {
    let text = fs::read_to_string(root().join("SECURITY.md")).unwrap();
    let named: Vec<_> = text
        .split('`')
        .filter_map(|piece| piece.split_once("::"))
        .filter(|(file, _)| file.ends_with(".rs"))
        .collect();
    assert!(named.len() > 30, "the table names tests: {named:?}");
    for (file, name) in named {
        let code = fs::read_to_string(root().join(file)).unwrap_or_default();
        let is_test = code.match_indices(&format!("fn {name}(")).any(|(at, _)| {
            let mut before = code[..at].lines().rev().take(3);
            // A macro calls the cases of the conformance suite.
            file.starts_with("tests/conformance/") || before.any(|line| line.contains("test"))
        });
        assert!(is_test, "{file}::{name}");
    }
}

/// Source files that documents name in backquotes exist: by their whole path, or by the
/// last part of it.
#[test]
fn named_files_exist() {
    let mut sources = Vec::new();
    for folder in ["crates", "tests", "bench", "examples"] {
        add_files(&root().join(folder), &mut sources);
    }
    let mut named = 0;
    for document in documents() {
        let text = fs::read_to_string(&document).unwrap();
        for code in text.lines().filter(|line| !line.starts_with("```")).flat_map(in_backquotes) {
            let file = code.split("::").next().unwrap_or_default();
            let is_path = file.bytes().all(|b| b.is_ascii_alphanumeric() || b"/._-".contains(&b));
            if !is_path || !(file.ends_with(".rs") || file.ends_with(".sql")) {
                continue;
            }
            named += 1;
            // `Path::ends_with` compares whole components.
            let exists = root().join(file).exists() || sources.iter().any(|s| s.ends_with(file));
            assert!(exists, "{}: there is no file {file}", document.display());
        }
    }
    assert!(named > 100, "{named}");
}

/// All files below a folder.
pub(super) fn add_files(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let entry = entry.unwrap();
        match entry.file_type().unwrap() {
            kind if kind.is_dir() && entry.file_name() != "target" => {
                add_files(&entry.path(), files);
            }
            kind if kind.is_file() => files.push(entry.path()),
            _ => {}
        }
    }
}

/// Settings of the systemd unit and files of `packaging/` that the pages about deployment
/// name exist.
#[test]
fn deployment_matches_packaging() {
    let pages = ["deployment", "systemd", "debian", "container", "kubernetes"];
    let pages = pages.map(|page| root().join(format!("docs/{page}.md")));
    let guide = pages.map(|page| fs::read_to_string(page).unwrap()).join("\n");
    let unit = fs::read_to_string(root().join("packaging/task-engine.service")).unwrap();
    let rows = guide.lines().filter(|line| line.starts_with("| `"));
    let settings = rows
        .flat_map(in_backquotes)
        .filter(|code| code.starts_with(|c: char| c.is_ascii_uppercase()) && code.contains('='));
    let settings: Vec<_> = settings.collect();
    assert!(settings.len() > 3, "{settings:?}");
    for setting in settings {
        assert!(unit.contains(&format!("\n{setting}\n")), "the unit has no {setting}");
    }
    for file in guide.split_whitespace().filter(|word| word.starts_with("packaging/")) {
        assert!(root().join(file).exists(), "there is no {file}");
    }
}

/// The guide lists all metrics, and no others.
#[test]
fn metrics_are_documented() {
    let guide = fs::read_to_string(root().join("docs/http-api.md")).unwrap();
    let documented: BTreeSet<_> = names_in(&guide).collect();
    let mut made = BTreeSet::new();
    for file in [
        "crates/web/src/api/metrics.rs",
        "crates/web/src/api/metrics/last_hour.rs",
        "crates/engine/src/measure.rs",
        "crates/engine/src/hooks.rs",
    ] {
        made.extend(quoted(&root().join(file)));
    }
    let documented: Vec<_> = documented.into_iter().collect();
    assert_eq!(documented, made.into_iter().collect::<Vec<_>>());
}

/// Names of metrics in backquotes.
fn names_in(text: &str) -> impl Iterator<Item = String> {
    text.split('`').filter(|name| is_metric(name)).map(str::to_owned)
}

/// Names of metrics in quotes, as in code.
fn quoted(file: &Path) -> Vec<String> {
    let code = fs::read_to_string(file).unwrap();
    let code = code.split("#[cfg(test)]").next().unwrap_or_default();
    code.split('"').filter(|name| is_metric(name)).map(str::to_owned).collect()
}

fn is_metric(name: &str) -> bool {
    name.starts_with("task_engine_")
        && name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_')
}
