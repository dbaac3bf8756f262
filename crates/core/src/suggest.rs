//! Suggestions for mistyped words.

/// Returns the known word that a mistyped one most likely stands for, if one is near.
pub fn nearest<'a>(typed: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let typed: String = typed.chars().take(100).flat_map(char::to_lowercase).collect();
    let typed = typed.replace('-', "_");
    let ranked =
        known.into_iter().map(|word| (strsim::osa_distance(&typed, &word.to_lowercase()), word));
    let is_near = |(distance, word): &(usize, &str)| {
        *distance <= 1 + word.len() / 4 && *distance < word.len()
    };
    ranked.min().filter(is_near).map(|(_, word)| word)
}

/// Returns the end of a sentence: `; did you mean WORD?`, or nothing.
pub fn did_you_mean<'a>(typed: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    nearest(typed, known).map_or_else(String::new, |word| format!("; did you mean {word}?"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn near_words_are_suggested() {
        let known = ["status", "class", "id", "replace_parameters"];
        for (typed, near) in [
            ("statsu", Some("status")),
            ("Clas", Some("class")),
            ("replace-parameter", Some("replace_parameters")),
            ("xy", None),
            ("nonsense", None),
        ] {
            assert_eq!(nearest(typed, known), near, "{typed}");
        }
    }
}
