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

use super::file::{CommandWords, ConfigText, SpannedName, Tables, Texts};
use super::{Checker, ConfigPurpose, Program};

const DEFAULT_PATH: &str = "/usr/local/bin:/usr/bin:/bin";
/// The variables that every executable gets of the engine's environment.
const PASSED: [&str; 6] = ["PATH", "HOME", "USER", "LANG", "TZ", "TMPDIR"];

impl Checker<'_> {
    /// The program of a table; `owner` is its kind and name, like `class hello`.
    pub(super) fn program(
        &mut self,
        owner: (&str, &SpannedName),
        command: Option<&Spanned<CommandWords>>,
        env: Option<&Spanned<Tables<ConfigText>>>,
        pass_env: Option<&Texts>,
        folder: Option<&Spanned<ConfigText>>,
    ) -> Option<Program> {
        let environment = self.environment(env, pass_env);
        let folder = self.work_folder(folder);
        let Some(command) = command else {
            let name = owner.1.get_ref();
            let mut message = format!(
                "{} {name} has no command; write command = [\"./PROGRAM\", \"ARGUMENT\"]",
                owner.0
            );
            if owner.0 == "class" {
                message.push_str(", or start with --listen if a worker that connects announces it");
            }
            self.error(owner.1.span(), message);
            return None;
        };
        let (path, arguments) = self.command(command)?;
        Some(Program { path, arguments, environment, folder })
    }

    /// The program, found, and its arguments.
    fn command(&mut self, command: &Spanned<CommandWords>) -> Option<(PathBuf, Vec<String>)> {
        let words = &command.get_ref().0;
        let Some((program, arguments)) =
            words.split_first().filter(|(program, _)| !program.get_ref().is_empty())
        else {
            self.error(command.span(), "the command is empty; its first text is the program");
            return None;
        };
        let arguments = arguments.iter().map(|word| word.get_ref().to_string()).collect();
        match find(program.get_ref(), self.folder) {
            Ok(found) => Some((found, arguments)),
            Err(_) if self.purpose == ConfigPurpose::Create => {
                Some((PathBuf::from(&**program.get_ref()), arguments))
            }
            Err(message) => {
                self.error(program.span(), message);
                None
            }
        }
    }

    fn work_folder(&mut self, named: Option<&Spanned<ConfigText>>) -> PathBuf {
        let Some(named) = named else {
            return self.folder.to_owned();
        };
        let folder = self.folder.join(&**named.get_ref());
        if self.purpose != ConfigPurpose::Create && !folder.is_dir() {
            self.error(named.span(), format!("there is no folder {}", folder.display()));
        }
        folder
    }

    /// `env` overrides `pass_env`, which overrides what every executable gets.
    fn environment(
        &mut self,
        env: Option<&Spanned<Tables<ConfigText>>>,
        pass_env: Option<&Texts>,
    ) -> Vec<(String, String)> {
        let mut environment: Vec<(String, String)> = PASSED
            .iter()
            .filter_map(|name| Some(((*name).to_owned(), env::var(name).ok()?)))
            .collect();
        for (name, value) in [("PATH", DEFAULT_PATH), ("LANG", "C.UTF-8")] {
            if !environment.iter().any(|(known, _)| known == name) {
                environment.push((name.to_owned(), value.to_owned()));
            }
        }
        for name in pass_env.iter().flat_map(|names| names.get_ref()) {
            self.variable_name(name.get_ref(), name.span());
            if let Ok(value) = env::var(&**name.get_ref()) {
                environment.push((name.get_ref().to_string(), value));
            }
        }
        for (name, value) in env.iter().flat_map(|named| named.get_ref()) {
            self.variable_name(name.get_ref(), name.span());
            environment.push((name.get_ref().clone(), value.to_string()));
        }
        environment
    }

    fn variable_name(&mut self, name: &str, span: Range<usize>) {
        if name.is_empty() || name.contains(['=', '\0']) {
            self.error(span, format!("{name:?} cannot be the name of a variable"));
        } else if ATTEMPT_VARIABLES.contains(&name) {
            self.error(span, format!("{name} is set by the engine for each attempt"));
        }
    }
}

/// Variables that tell an executable which attempt it runs for.
pub(in crate::executables) const ATTEMPT_VARIABLES: [&str; 7] = [
    "TASK_ENGINE_TASK_ID",
    "TASK_ENGINE_ATTEMPT",
    "TASK_ENGINE_RETRY_NUMBER",
    "TASK_ENGINE_CORRELATION_ID",
    "TASK_ENGINE_PARENT_ID",
    "TASK_ENGINE_CLASS",
    DEPENDENCIES_VARIABLE,
];
/// Of a task that depends on others: how these have ended.
pub(in crate::executables) const DEPENDENCIES_VARIABLE: &str = "TASK_ENGINE_DEPENDENCIES";

/// Finds a program: a path is relative to the folder of the file; a bare name is
/// searched beside the file, then in PATH.
pub(super) fn find(name: &str, folder: &Path) -> Result<PathBuf, String> {
    if name.contains('/') {
        let path: PathBuf = folder.join(name).components().collect();
        return match path.try_exists() {
            Ok(true) => runnable(path),
            Ok(false) => Err(format!("there is no program {}", path.display())),
            // A folder that this user may not enter, as a rule.
            Err(error) => Err(format!("the program {} cannot be reached: {error}", path.display())),
        };
    }
    let beside = folder.join(name);
    if beside.is_file() {
        return runnable(beside);
    }
    let path = env::var_os("PATH").unwrap_or_else(|| DEFAULT_PATH.into());
    let found = env::split_paths(&path)
        .filter(|folder| folder.is_absolute())
        .map(|folder| folder.join(name))
        .find(|path| path.is_file() && runnable(path.clone()).is_ok());
    found.ok_or_else(|| {
        format!("there is no program {name:?}, neither in {} nor in PATH", folder.display())
    })
}

fn runnable(path: PathBuf) -> Result<PathBuf, String> {
    let file = fs::metadata(&path).map_err(|error| format!("{}: {error}", path.display()))?;
    if !file.is_file() {
        return Err(format!("{} is not a file", path.display()));
    }
    if file.permissions().mode() & 0o111 == 0 {
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

/// The interpreter of a script, by its first line. If it is missing, the system
/// reports only "no such file" and does not name it.
fn interpreter(script: &Path) -> Option<PathBuf> {
    let mut start = Vec::new();
    fs::File::open(script).ok()?.take(256).read_to_end(&mut start).ok()?;
    let line = start.strip_prefix(b"#!")?.split(|byte| *byte == b'\n').next()?;
    let mut words = line.split(|byte| matches!(byte, b' ' | b'\t')).filter(|word| !word.is_empty());
    Some(OsStr::from_bytes(words.next()?).into())
}
