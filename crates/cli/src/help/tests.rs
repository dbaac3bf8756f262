use super::*;

fn answer(words: &[&str]) -> String {
    let program = std::iter::once(&"task-engine");
    let mut error = command().try_get_matches_from(program.chain(words)).unwrap_err();
    let words: Vec<_> = words.iter().map(|word| (*word).to_owned()).collect();
    explain_unknown(&mut error, &words);
    error.to_string()
}

#[test]
fn groups_list_every_command_once() {
    let command = command();
    let visible = command.get_subcommands().filter(|command| !command.is_hide_set());
    let mut there: Vec<_> = visible.map(Command::get_name).collect();
    let mut listed: Vec<_> = GROUPS.iter().flat_map(|(_, names)| *names).copied().collect();
    let in_order = listed.clone();
    assert_eq!(there, in_order, "manual pages have the same order");
    there.sort_unstable();
    listed.sort_unstable();
    assert_eq!(there, listed);
}

#[test]
fn help_fits_eighty_columns() {
    let help = |option| {
        let shown = command().try_get_matches_from(["task-engine", option]).unwrap_err();
        assert_eq!(shown.kind(), ErrorKind::DisplayHelp);
        shown.to_string()
    };
    assert_eq!(help("-h"), help("--help"));
    let help = help("--help");
    for line in help.lines() {
        assert!(line.chars().count() <= COLUMNS_MAX, "{line}");
    }
    for (group, _) in GROUPS {
        assert!(help.contains(&format!("\n{group}:\n")), "{help}");
    }
}

#[test]
fn destructive_commands_are_never_suggested() {
    for word in ["pause", "resume", "run", "prun", "delet", "cancle", "purge", "clear", "puse"] {
        let answer = answer(&[word, "mail"]);
        assert!(
            !DESTRUCTIVE.iter().any(|name| answer.contains(&format!(": '{name}'"))),
            "{answer}"
        );
    }
    for words in [["schedules", "delete"], ["schedules", "remov"], ["tokens", "revok"]] {
        let answer = answer(&words);
        assert!(
            !DESTRUCTIVE.iter().any(|name| answer.contains(&format!(": '{name}'"))),
            "{answer}"
        );
    }
}

#[test]
fn words_of_other_systems_are_explained() {
    let pause = answer(&["pause", "mail box"]);
    assert!(
        pause.contains("tip: to pause a queue: task-engine queues pause 'mail box'"),
        "{pause}"
    );
    let resume = answer(&["resume"]);
    assert!(resume.contains("task-engine queues resume NAME"), "{resume}");
    assert!(answer(&["run", "--workers"]).contains("task-engine start"));
    assert!(answer(&["taks"]).contains("'tasks'"));
    let nested = answer(&["queues", "run"]);
    assert!(!nested.contains("tip: to"), "{nested}");
}

#[test]
fn explained_commands_exist() {
    for tip in KNOWN_WORDS.iter().flat_map(|(_, tips)| *tips) {
        let (_, rest) = tip.split_once("task-engine ").unwrap();
        let mut at = command();
        for word in rest.split([' ', ')']).take_while(|word| word.chars().all(char::is_lowercase)) {
            let Some(inner) = at.find_subcommand(word) else { break };
            at = inner.clone();
        }
        assert_ne!(at.get_name(), "task-engine", "{tip}");
        assert!(!DESTRUCTIVE.contains(&at.get_name()), "{tip}");
    }
    for (words, _) in KNOWN_WORDS {
        for word in *words {
            assert!(command().find_subcommand(word).is_none(), "{word} is a command");
        }
    }
}

#[test]
fn singular_names_are_aliases() {
    for (singular, name) in [
        ("task", "tasks"),
        ("log", "logs"),
        ("error", "errors"),
        ("stat", "stats"),
        ("queue", "queues"),
        ("schedule", "schedules"),
        ("instance", "instances"),
        ("token", "tokens"),
        ("completion", "completions"),
    ] {
        let command = command();
        let found = command.find_subcommand(singular).map(Command::get_name);
        assert_eq!(found, Some(name));
    }
}
