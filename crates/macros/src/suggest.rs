//! Suggestions for mistyped words, by the rule of `task_engine_core::suggest`.

/// The end of a sentence: `; did you mean WORD?`, or nothing.
pub(crate) fn did_you_mean<'a>(typed: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    let folded = typed.to_lowercase().replace('-', "_");
    let ranked = known.into_iter().map(|word| (strsim::osa_distance(&folded, word), word));
    match ranked.min() {
        Some((distance, word)) if distance <= 1 + word.len() / 4 && distance < word.len() => {
            format!("; did you mean `{word}`?")
        }
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn near_words_are_suggested() {
        let known = ["class", "queue", "cancel_grace"];
        assert_eq!(did_you_mean("clas", known), "; did you mean `class`?");
        assert_eq!(did_you_mean("cancel-grace", known), "; did you mean `cancel_grace`?");
        assert_eq!(did_you_mean("colour", known), "");
    }
}
