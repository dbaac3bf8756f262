//! The Debian package, built from the program under test, as dpkg sees it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use super::super::support::sandbox;
use super::{of_unit, root};
use task_engine_test_harness::{Sandbox, not_run};

const PROGRAM: &str = env!("CARGO_BIN_EXE_task-engine");

fn can_build() -> bool {
    let missing = ["dpkg-deb", "dpkg-shlibdeps"].into_iter().find(|tool| {
        let found = Command::new(tool).arg("--version").output();
        !found.is_ok_and(|done| done.status.success())
    });
    if let Some(tool) = missing {
        not_run("debian", &format!("{tool} is missing, so no package is built"));
    }
    missing.is_none()
}

fn build(binary: &str, output: &Path) -> Output {
    Command::new(root().join("packaging/build-deb"))
        .args(["--quick", "--binary", binary, "--output"])
        .arg(output)
        .output()
        .expect("packaging/build-deb")
}

fn ask(arguments: &[&str]) -> String {
    let done = Command::new(arguments[0]).args(&arguments[1..]).output().expect(arguments[0]);
    assert!(done.status.success(), "{arguments:?}: {done:?}");
    String::from_utf8(done.stdout).expect("text")
}

fn read(path: impl AsRef<Path>) -> String {
    let path = path.as_ref();
    if path.extension().is_some_and(|end| end == "gz") {
        return ask(&["gzip", "-dc", path.to_str().unwrap()]);
    }
    fs::read_to_string(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

#[test]
fn debian_package_is_complete() {
    if !can_build() {
        return;
    }
    let sandbox = sandbox();
    let built = build(PROGRAM, &sandbox.path("."));
    assert!(built.status.success(), "{built:?}");
    let package = String::from_utf8(built.stdout).unwrap().trim().to_owned();

    let field = |name: &str| ask(&["dpkg-deb", "-f", &package, name]).trim().to_owned();
    assert_eq!(field("Package"), "task-engine");
    // A package of 0.2.0-rc.1 must give way to one of 0.2.0.
    let version = env!("CARGO_PKG_VERSION").replacen('-', "~", 1);
    assert_eq!(field("Version"), format!("{version}-1"));
    assert!(field("Depends").ends_with("adduser"), "the user is made by it");
    if cfg!(target_env = "gnu") {
        assert!(field("Depends").contains("libc6 (>= 2."), "{}", field("Depends"));
    }

    let listed = ask(&["dpkg-deb", "-c", &package]);
    assert!(listed.lines().all(|line| line.contains(" root/root ")), "{listed}");
    let secrets = listed.lines().find(|line| line.ends_with("/etc/task-engine/environment"));
    assert!(secrets.expect("settings").starts_with("-rw------- "), "root alone reads passwords");
    let folder = sandbox.path("unpacked");
    ask(&["dpkg-deb", "-R", &package, folder.to_str().unwrap()]);
    let at = |path: &str| folder.join(path);

    its_program_runs(&sandbox, &at("usr/bin/task-engine"));
    its_pages_are_those_of_the_program(&sandbox, &at("usr/share/man/man1"));
    it_completes(&at("usr/share/bash-completion/completions/task-engine"));
    assert!(read(at("usr/share/zsh/vendor-completions/_task-engine")).starts_with("#compdef"));
    let fish = read(at("usr/share/fish/vendor_completions.d/task-engine.fish"));
    assert!(fish.contains("complete -c task-engine"));
    its_unit_starts_it(&read(at("usr/lib/systemd/system/task-engine.service")));

    assert_eq!(read(at("DEBIAN/conffiles")), "/etc/task-engine/environment\n");
    for script in ["postinst", "prerm", "postrm"] {
        ask(&["sh", "-n", at("DEBIAN").join(script).to_str().unwrap()]);
    }
    let doc = |name: &str| read(at("usr/share/doc/task-engine").join(name));
    assert!(doc("copyright").ends_with(" SOFTWARE.\n"), "the whole of the licence");
    assert!(doc("changelog.Debian.gz").starts_with(&format!("task-engine ({version}-1) ")));
    let notices = doc("notices.gz");
    assert!(notices.contains("======== tokio 1."), "whose code is in it");
    assert!(notices.contains("Permission is hereby granted"));
}

fn its_program_runs(sandbox: &Sandbox, program: &Path) {
    let here = sandbox.ok(&["--version"]);
    let installed = sandbox.shell(&format!("{} --version", program.display()));
    assert_eq!(installed.out, here);
    let demo = sandbox.shell(&format!("{} demo", program.display()));
    assert_eq!(demo.code, Some(0), "{demo:?}");
    assert!(demo.err.contains("106 of 106 tasks done"), "{}", demo.err);
}

fn its_pages_are_those_of_the_program(sandbox: &Sandbox, folder: &Path) {
    let written = sandbox.ok(&["man", "--dir", "man-pages"]);
    assert_eq!(fs::read_dir(folder).unwrap().count(), written.lines().count());
    for page in written.lines() {
        let name = PathBuf::from(page).file_name().unwrap().to_str().unwrap().to_owned();
        assert_eq!(read(folder.join(format!("{name}.gz"))), read(sandbox.path(page)));
    }
}

fn it_completes(file: &Path) {
    let script = format!(
        "source {} && [[ $(complete -p task-engine) =~ -F\\ ([^ ]+) ]] \
         && COMP_WORDS=(task-engine doct) COMP_CWORD=1 \
         && \"${{BASH_REMATCH[1]}}\" task-engine doct task-engine && echo \"${{COMPREPLY[@]}}\"",
        file.display()
    );
    assert_eq!(ask(&["bash", "-c", &script]), "doctor\n");
}

/// As the one for installing by hand, but from the sandbox of packages.
fn its_unit_starts_it(unit: &str) {
    let unit = unit.replace("\\\n", " ");
    let line = unit.lines().find_map(|line| line.strip_prefix("ExecStart=")).expect("ExecStart");
    let words: Vec<&str> = line.split_whitespace().collect();
    assert_eq!(words[0], "/usr/bin/task-engine");
    assert_eq!(words[1..], of_unit());
    assert!(unit.starts_with("[Unit]\n"), "nothing has to be installed by hand");
    assert!(!unit.contains("/usr/local"));
}

#[test]
fn other_version_is_not_packed() {
    if !can_build() {
        return;
    }
    let sandbox = sandbox();
    let refused = build("/bin/true", &sandbox.path("."));
    assert_eq!(refused.status.code(), Some(1));
    let why = String::from_utf8(refused.stderr).unwrap();
    assert!(why.contains(concat!("Cargo.toml ", env!("CARGO_PKG_VERSION"))), "{why}");
}
