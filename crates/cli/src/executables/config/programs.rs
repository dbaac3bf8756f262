//! The programs of the file: found before anything starts, with the folder and
//! the environment that they run in.

use std::env;
use std::ffi::OsStr;
use std::fs;
use std::io::Read;
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use toml::Spanned;
use toml::de::DeTable;

use super::values::{Value, entry};
use super::{Program, ConfigPurpose, Reader};

const DEFAULT_PATH: &str = "/usr/local/bin:/usr/bin:/bin";
/// What an executable gets of the engine's environment without being asked for.
const PASSED: [&str; 6] = ["PATH", "HOME", "USER", "LANG", "TZ", "TMPDIR"];
/// The keys that say how a process is started.
pub(super) const PROGRAM_KEYS: [&str; 4] = ["command", "env", "pass_env", "folder"];

impl Reader<'_> {
    /// The program of a table that has a command.
    pub(super) fn program(&mut self, table: &DeTable<'_>, command: &Value<'_>) -> Option<Program> {
        let environment = self.environment(table);
        let folder = self.work_folder(table);
        let (path, arguments) = self.command(command)?;
        Some(Program { path, arguments, environment, folder })
    }

    /// The program, found, and its arguments.
    fn command(&mut self, value: &Value<'_>) -> Option<(PathBuf, Vec<String>)> {
        if let Some(text) = value.get_ref().as_str() {
            let words: Vec<String> =
                text.split_whitespace().map(|word| format!("{word:?}")).collect();
            let message = format!(
                "a command is a list, because no shell reads it: command = [{}]",
                words.join(", ")
            );
            self.mistake(value.span(), message);
            return None;
        }
        let words = self.texts(value, "command")?;
        let Some((program, arguments)) =
            words.split_first().filter(|(program, _)| !program.is_empty())
        else {
            self.mistake(value.span(), "the command is empty; its first text is the program");
            return None;
        };
        let place = value.get_ref().as_array().and_then(|words| words.iter().next());
        let place = place.map_or(value.span(), Spanned::span);
        if words.iter().any(|word| word.contains('\0')) {
            self.mistake(value.span(), "a command cannot contain the character NUL");
            return None;
        }
        match find(program, self.folder) {
            Ok(found) => Some((found, arguments.to_vec())),
            Err(_) if self.purpose == ConfigPurpose::Create => Some((program.into(), arguments.to_vec())),
            Err(message) => {
                self.mistake(place, message);
                None
            }
        }
    }

    fn work_folder(&mut self, table: &DeTable<'_>) -> PathBuf {
        let Some((_, value)) = entry(table, "folder") else {
            return self.folder.to_owned();
        };
        let Some(text) = self.text(value, "folder") else {
            return self.folder.to_owned();
        };
        let folder = self.folder.join(text);
        if self.purpose == ConfigPurpose::Run && !folder.is_dir() {
            self.mistake(value.span(), format!("there is no folder {}", folder.display()));
        }
        folder
    }

    /// What is named, over what is passed on, over what is always there.
    pub(super) fn environment(&mut self, table: &DeTable<'_>) -> Vec<(String, String)> {
        let mut environment: Vec<(String, String)> = PASSED
            .iter()
            .filter_map(|name| Some(((*name).to_owned(), env::var(name).ok()?)))
            .collect();
        for (name, value) in [("PATH", DEFAULT_PATH), ("LANG", "C.UTF-8")] {
            if !environment.iter().any(|(there, _)| there == name) {
                environment.push((name.to_owned(), value.to_owned()));
            }
        }
        if let Some((_, value)) = entry(table, "pass_env") {
            for name in self.texts(value, "pass_env").unwrap_or_default() {
                self.variable_name(&name, value.span());
                if let Ok(set) = env::var(&name) {
                    environment.push((name, set));
                }
            }
        }
        if let Some((_, value)) = entry(table, "env")
            && let Some(named) = self.table(value, "env")
        {
            for (name, value) in named {
                self.variable_name(name.get_ref(), name.span());
                if let Some(text) = self.text(value, name.get_ref()) {
                    environment.push((name.get_ref().to_string(), text));
                }
            }
        }
        environment
    }

    fn variable_name(&mut self, name: &str, span: Range<usize>) {
        if name.is_empty() || name.contains(['=', '\0']) {
            self.mistake(span, format!("{name:?} cannot be the name of a variable"));
        } else if name.starts_with("TASK_ENGINE_") && ATTEMPT_VARIABLES.contains(&name) {
            self.mistake(span, format!("{name} is set by the engine for each attempt"));
        }
    }
}

/// Variables that tell an executable which attempt it runs for.
pub(in crate::executables) const ATTEMPT_VARIABLES: [&str; 6] = [
    "TASK_ENGINE_TASK_ID",
    "TASK_ENGINE_ATTEMPT",
    "TASK_ENGINE_RETRY_NUMBER",
    "TASK_ENGINE_CORRELATION_ID",
    "TASK_ENGINE_PARENT_ID",
    "TASK_ENGINE_CLASS",
];

/// The program that a name means: a path is seen from the folder of the file; a
/// bare name is looked for beside the file, then in PATH.
pub(super) fn find(name: &str, folder: &Path) -> Result<PathBuf, String> {
    if name.contains('/') {
        let path: PathBuf = folder.join(name).components().collect();
        return if path.exists() {
            runnable(path)
        } else {
            Err(format!("there is no program {}", path.display()))
        };
    }
    let beside = folder.join(name);
    if beside.is_file() {
        return runnable(beside);
    }
    let path = env::var_os("PATH").unwrap_or_else(|| DEFAULT_PATH.into());
    let found = env::split_paths(&path)
        .filter(|place| place.is_absolute())
        .map(|place| place.join(name))
        .find(|path| path.is_file() && runnable(path.clone()).is_ok());
    found.ok_or_else(|| {
        format!("there is no program {name:?}, neither in {} nor in PATH", folder.display())
    })
}

fn runnable(path: PathBuf) -> Result<PathBuf, String> {
    let there = fs::metadata(&path).map_err(|error| format!("{}: {error}", path.display()))?;
    if !there.is_file() {
        return Err(format!("{} is not a file", path.display()));
    }
    if there.permissions().mode() & 0o111 == 0 {
        return Err(format!("{0} may not be executed; run: chmod +x {0}", path.display()));
    }
    match interpreter(&path).filter(|named| named.is_absolute() && !named.exists()) {
        None => Ok(path),
        Some(named) if named.as_os_str().as_bytes().ends_with(b"\r") => Err(format!(
            "{} has the line ends of Windows, which its first line must not have; convert it",
            path.display()
        )),
        Some(named) => Err(format!(
            "{} cannot run: its first line names {}, which does not exist",
            path.display(),
            named.display()
        )),
    }
}

/// What runs a script, by its first line. The system would only say that there is
/// no such file, and mean this one.
fn interpreter(script: &Path) -> Option<PathBuf> {
    let mut start = Vec::new();
    fs::File::open(script).ok()?.take(256).read_to_end(&mut start).ok()?;
    let line = start.strip_prefix(b"#!")?.split(|byte| *byte == b'\n').next()?;
    let mut words = line.split(|byte| matches!(byte, b' ' | b'\t')).filter(|word| !word.is_empty());
    Some(OsStr::from_bytes(words.next()?).into())
}
