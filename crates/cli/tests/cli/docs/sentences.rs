//! The sentences of the documents and of the doc comments are short, and use the words of
//! the glossary.

use std::fs;
use std::path::{Path, PathBuf};

use super::names::add_files;
use super::{all_documents, root};

/// Words outside of code in one sentence.
const MAX_WORDS: usize = 30;

/// Words that hide the subject of a sentence, or name a thing by a metaphor.
const BANNED: &str = "anybody, anyone, as of now, asks nobody, cannot be meant, complaint, \
    complaints, deed, deeds, door, doors, given back, glance, glances, good-bye, hence, is meant, \
    life, lives, manner, mend, mended, mends, mistake, mistakes, nobody, nowhere, on record, \
    patience, sleeper, sleepers, somebody, someone, taken back, the living, ticket, tickets, \
    told, unhappy, whence, whoever, wish, wished, wishes, workplace";

/// Phrases in which a banned word is the usual one.
const ALLOWED: &[&str] = &[
    // Everyone knows the term.
    "life cycle",
];

/// Beginnings of sentences whose subject is not named.
const BANNED_BEGINNINGS: &[&str] = &["Who ", "Whoever "];

#[test]
fn sentences_are_short() {
    let mut found = Vec::new();
    for (place, text) in all_texts() {
        // The list of changes has long items; its words are checked.
        if place == "CHANGELOG.md" {
            continue;
        }
        for sentence in blocks(&text).iter().filter(|block| !block.is_table).flat_map(sentences) {
            let words = words(&sentence);
            if words > MAX_WORDS {
                found.push(format!("{place}: {words} words: {sentence}"));
            }
        }
    }
    assert!(found.is_empty(), "{} long sentences:\n{}", found.len(), found.join("\n"));
}

#[test]
fn sentences_use_known_words() {
    let mut found = Vec::new();
    for (place, text) in all_texts() {
        for sentence in blocks(&text).iter().flat_map(sentences) {
            let banned = banned_in(&sentence);
            found.extend(banned.map(|word| format!("{place}: {word:?}: {sentence}")));
        }
    }
    assert!(found.is_empty(), "{} banned words:\n{}", found.len(), found.join("\n"));
}

/// Lists of items show the first paragraph of a doc comment.
#[test]
fn doc_comments_begin_with_one_sentence() {
    let mut found = Vec::new();
    for comment in doc_comments().into_iter().filter(|comment| comment.is_public) {
        let first = blocks(&comment.text).first().map(sentences).unwrap_or_default();
        if first.len() != 1 || !first[0].ends_with('.') {
            found.push(format!("{}: {}", comment.place, first.join(" ")));
        }
    }
    assert!(found.is_empty(), "{} first paragraphs:\n{}", found.len(), found.join("\n"));
}

/// The documents and the doc comments, each with its place.
fn all_texts() -> impl Iterator<Item = (String, String)> {
    let documents = all_documents().into_iter().map(|document| {
        let text = fs::read_to_string(&document).unwrap();
        (name(&document), text)
    });
    documents.chain(doc_comments().into_iter().map(|comment| (comment.place, comment.text)))
}

fn name(file: &Path) -> String {
    file.strip_prefix(root()).unwrap_or(file).display().to_string()
}

/// The text of a doc comment, in Markdown.
struct DocComment {
    /// The file and the line after the comment.
    place: String,
    text: String,
    /// Whether the comment belongs to a `pub` item.
    is_public: bool,
}

/// The doc comments of the published crates, without those of their tests.
fn doc_comments() -> Vec<DocComment> {
    let mut comments = Vec::new();
    for file in sources() {
        let code = fs::read_to_string(&file).unwrap();
        comments.extend(doc_comments_of(&name(&file), &code));
    }
    assert!(comments.len() > 5000, "{}", comments.len());
    comments
}

fn sources() -> Vec<PathBuf> {
    let mut files = Vec::new();
    for krate in fs::read_dir(root().join("crates")).unwrap() {
        add_files(&krate.unwrap().path().join("src"), &mut files);
    }
    files.retain(|file| {
        let is_test = file.components().any(|part| part.as_os_str() == "tests");
        file.extension().is_some_and(|end| end == "rs") && !is_test && !file.ends_with("tests.rs")
    });
    files
}

fn doc_comments_of(file: &str, code: &str) -> Vec<DocComment> {
    let mut comments = Vec::new();
    let mut text = String::new();
    for (n, line) in code.lines().enumerate() {
        let line = line.trim();
        if let Some(rest) = line.strip_prefix("///").or_else(|| line.strip_prefix("//!")) {
            text += rest;
            text.push('\n');
        } else if !text.is_empty() && !line.starts_with("#[") {
            let text = std::mem::take(&mut text);
            let is_public = line.starts_with("pub ");
            comments.push(DocComment { place: format!("{file}:{}", n + 1), text, is_public });
        }
    }
    comments
}

/// A paragraph, a heading, an item of a list, or a cell of a table, as plain text: without
/// code, marks and the targets of links.
struct Block {
    text: String,
    is_item: bool,
    is_table: bool,
}

fn blocks(text: &str) -> Vec<Block> {
    let mut blocks: Vec<Block> = Vec::new();
    let mut continues = false;
    let mut in_code = false;
    for line in text.lines() {
        let line = line.trim().trim_start_matches("> ");
        in_code ^= line.starts_with("```");
        let is_target = line.starts_with('[') && line.contains("]: ");
        if in_code || is_target || line.is_empty() || line.starts_with("```") {
            continues = false;
            continue;
        }
        if line.starts_with('|') {
            let cells = line.split('|').filter(|cell| cell.contains(char::is_alphabetic));
            blocks.extend(cells.map(|cell| Block {
                text: cell.to_owned(),
                is_item: false,
                is_table: true,
            }));
            continues = false;
        } else if line.starts_with('#') {
            let text = line.trim_start_matches('#').to_owned();
            blocks.push(Block { text, is_item: false, is_table: false });
            continues = false;
        } else if let Some(item) = item(line) {
            blocks.push(Block { text: item.to_owned(), is_item: true, is_table: false });
            continues = true;
        } else if let Some(last) = blocks.last_mut().filter(|_| continues) {
            last.text = format!("{} {line}", last.text);
        } else {
            blocks.push(Block { text: line.to_owned(), is_item: false, is_table: false });
            continues = true;
        }
    }
    for block in &mut blocks {
        block.text = plain(&block.text);
    }
    blocks
}

/// The text of an item of a list.
fn item(line: &str) -> Option<&str> {
    let number = line.trim_start_matches(|c: char| c.is_ascii_digit());
    let numbered = (number.len() < line.len()).then(|| number.strip_prefix(". ")).flatten();
    line.strip_prefix("- ").or_else(|| line.strip_prefix("* ")).or(numbered)
}

/// A text without pictures, marks and the targets of links. Code is one word, `CODE`.
fn plain(line: &str) -> String {
    let mut text = String::new();
    for (n, piece) in line.split('`').enumerate() {
        text += if n % 2 == 0 { piece } else { "CODE" };
    }
    let text = text.replace("**", "").replace("![", "[");
    let mut plain = String::new();
    let mut rest = text.as_str();
    while let Some((before, after)) = rest.split_once("](") {
        plain += &before.replace('[', "");
        rest = after.split_once(')').map_or("", |(_, rest)| rest);
    }
    plain + &rest.replace('[', "")
}

/// In a list, a semicolon ends a sentence, too.
fn sentences(block: &Block) -> Vec<String> {
    let mut sentences = Vec::new();
    let mut sentence = String::new();
    let mut chars = block.text.trim().chars().peekable();
    while let Some(c) = chars.next() {
        sentence.push(c);
        let is_mark = ".!?".contains(c) || c == ';' && block.is_item;
        let ends = chars.peek().is_none_or(|next| next.is_whitespace() || *next == '"');
        if is_mark && ends {
            sentences.push(std::mem::take(&mut sentence).trim().to_owned());
        }
    }
    sentences.push(sentence.trim().to_owned());
    sentences.retain(|sentence| !sentence.is_empty());
    sentences
}

fn words(sentence: &str) -> usize {
    sentence.split_whitespace().filter(|word| word.contains(char::is_alphanumeric)).count()
}

fn banned_in(sentence: &str) -> impl Iterator<Item = &'static str> {
    let beginnings = BANNED_BEGINNINGS.iter().filter(|begin| sentence.starts_with(**begin));
    let beginnings: Vec<_> = beginnings.copied().collect();
    let mut text = sentence.to_lowercase();
    for allowed in ALLOWED {
        text = text.replace(allowed, "");
    }
    let apart = |c: char| if c.is_alphanumeric() || c == '-' { c } else { ' ' };
    let text = format!(" {} ", text.chars().map(apart).collect::<String>());
    let words = BANNED.split(", ").filter(move |word| text.contains(&format!(" {word} ")));
    words.chain(beginnings)
}

#[test]
fn sentences_are_found() {
    let text = "# One two\n\nA `b.c` d\ne [f. G](h.md#i). J!\n- k; l\n  m\n\n| n | o. p |\n\
                ```sh\nq r\n```\n2. s\n[t]: u";
    let found: Vec<_> = blocks(text).iter().flat_map(sentences).collect();
    assert_eq!(found, ["One two", "A CODE d e f.", "G.", "J!", "k;", "l m", "n", "o.", "p", "s"]);
    assert_eq!(words("A b - c"), 3);
    let banned = |sentence| banned_in(sentence).collect::<Vec<_>>();
    assert_eq!(banned("Nobody has a wish, or wishful life cycle."), ["nobody", "wish"]);
    assert_eq!(banned("Who reads this"), ["Who "]);
}

#[test]
fn doc_comments_are_found() {
    let code = "//! A.\n\n/// B\n/// c.\n#[d]\npub e: f,\n// g\n    /// H.\n    i,\n";
    let found = doc_comments_of("j.rs", code);
    let found: Vec<_> =
        found.iter().map(|c| (c.place.as_str(), c.text.as_str(), c.is_public)).collect();
    let expected =
        [("j.rs:2", " A.\n", false), ("j.rs:6", " B\n c.\n", true), ("j.rs:9", " H.\n", false)];
    assert_eq!(found, expected);
}
