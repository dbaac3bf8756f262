//! The PostgreSQL installation, and the user that runs it.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::process::command;

const MISSING: &str = "these tests need PostgreSQL, and no initdb was found in PATH or in \
     /usr/lib/postgresql/*/bin. Install the server (it need not run): \
     on Debian or Ubuntu `apt-get install postgresql`, on Fedora `dnf install \
     postgresql-server`, on macOS `brew install postgresql`";

/// A user other than root, as PostgreSQL requires.
#[derive(Debug)]
pub(super) struct User {
    name: &'static str,
    pub(super) uid: u32,
    pub(super) gid: u32,
}

/// The user of the server; `None` for the current one.
pub(super) fn server_user() -> Option<User> {
    if id_of(&["-u"]) != Some(0) {
        return None;
    }
    let user = ["postgres", "nobody"].into_iter().find_map(|name| {
        Some(User { name, uid: id_of(&["-u", name])?, gid: id_of(&["-g", name])? })
    });
    let advice = "PostgreSQL does not run as root, and there is neither a user `postgres` nor \
                  `nobody`: run the tests as another user";
    Some(user.expect(advice))
}

fn id_of(arguments: &[&str]) -> Option<u32> {
    let output = Command::new("id").args(arguments).output().ok()?;
    String::from_utf8(output.stdout).ok()?.trim().parse().ok()
}

/// `setpriv` becomes the program; `runuser`, where there is no `setpriv`,
/// stays as its parent and passes the pipes on.
pub(super) fn command_as(user: Option<&User>, program: impl AsRef<std::ffi::OsStr>) -> Command {
    let Some(User { name, uid, gid }) = user else {
        return command(program);
    };
    let mut command = if find_in_path("setpriv").is_some() {
        let mut command = command("setpriv");
        command
            .args([format!("--reuid={uid}"), format!("--regid={gid}")])
            .args(["--clear-groups", "--"]);
        command
    } else {
        let mut command = command("runuser");
        command.args(["-u", name, "--"]);
        command
    };
    command.arg(program);
    command
}

/// Names the folder of `initdb` and `postgres`, to test another version.
const PROGRAMS_VARIABLE: &str = "TASK_ENGINE_TEST_POSTGRES";

/// The folder of `initdb` and `postgres`: from the variable, in PATH, or where
/// Debian installs them.
pub(super) fn programs() -> PathBuf {
    find_programs().unwrap_or_else(|| panic!("{MISSING}"))
}

fn find_programs() -> Option<PathBuf> {
    if let Some(named) = std::env::var_os(PROGRAMS_VARIABLE) {
        let named = PathBuf::from(named);
        assert!(has_server(&named), "{PROGRAMS_VARIABLE}: no initdb and postgres in {named:?}");
        return Some(named);
    }
    let in_path = find_in_path("initdb")
        .and_then(|initdb| initdb.canonicalize().ok())
        .and_then(|initdb| initdb.parent().map(Path::to_owned));
    let versions = std::fs::read_dir("/usr/lib/postgresql").into_iter();
    let mut installed: Vec<_> =
        versions.flatten().flatten().map(|entry| entry.path().join("bin")).collect();
    installed.sort_by_key(|path| version_of(path));
    let all = in_path.into_iter().chain(installed.into_iter().rev());
    all.into_iter().find(|path| has_server(path))
}

fn has_server(folder: &Path) -> bool {
    ["initdb", "postgres"].iter().all(|program| folder.join(program).is_file())
}

/// The number in `/usr/lib/postgresql/NUMBER/bin`.
fn version_of(path: &Path) -> u32 {
    let version = path.parent().and_then(Path::file_name);
    let version = version.and_then(|version| version.to_str()?.parse().ok());
    version.unwrap_or(0)
}

fn find_in_path(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path)
        .map(|directory| directory.join(program))
        .find(|candidate| candidate.is_file())
}
