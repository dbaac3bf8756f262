//! Times and durations in requests.

use jiff::Timestamp;

pub(super) use task_engine_core::parse::duration_with_unit as duration;

/// `2026-12-24T18:00:00Z`, or with another offset.
pub(super) fn time(text: &str) -> Result<Timestamp, String> {
    let time: Timestamp = text
        .trim()
        .parse()
        .map_err(|_| format!("{text:?} is not a time; write 2026-12-24T18:00:00Z"))?;
    if time < Timestamp::UNIX_EPOCH {
        return Err("this is before 1970".to_owned());
    }
    Ok(time)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_times_are_refused() {
        assert!(time("2026-12-24T18:00:00+01:00").is_ok());
        for text in ["", "18:00", "2026-12-24", "-009999-01-02T00:00:00Z"] {
            assert!(time(text).is_err(), "{text}");
        }
    }
}
