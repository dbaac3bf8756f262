//! The W3C trace context of a task: its parent span.

use std::fmt;
use std::str::FromStr;
use std::sync::OnceLock;

use serde::{Serialize, Serializer};

/// A W3C `traceparent`: `00-TRACE-SPAN-FLAGS`, in lower-case hexadecimal digits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Traceparent {
    trace_id: u128,
    span_id: u64,
    flags: u8,
}

/// The error of a text that is not a `traceparent`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "invalid traceparent {text:?}: {why}; it looks like 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
)]
pub struct InvalidTraceparent {
    text: String,
    why: &'static str,
}

impl Traceparent {
    /// Returns a span by its trace, its own id and its flags; `None` if an id is zero, which means
    /// "no span".
    #[must_use]
    pub fn new(trace_id: u128, span_id: u64, flags: u8) -> Option<Self> {
        (trace_id != 0 && span_id != 0).then_some(Self { trace_id, span_id, flags })
    }

    /// Returns the trace.
    #[must_use]
    pub fn trace_id(self) -> u128 {
        self.trace_id
    }

    /// Returns the span.
    #[must_use]
    pub fn span_id(self) -> u64 {
        self.span_id
    }

    /// Returns the flags; bit 0 says that the trace is recorded.
    #[must_use]
    pub fn flags(self) -> u8 {
        self.flags
    }

    /// Returns the current span of this thread, if [`set_current_span`] was called.
    #[must_use]
    pub fn current() -> Option<Self> {
        CURRENT_SPAN.get().and_then(|current| current())
    }
}

static CURRENT_SPAN: OnceLock<fn() -> Option<Traceparent>> = OnceLock::new();

/// Sets how to find the current span of a thread, so that tasks are created under it.
///
/// This crate depends on no tracing system; the feature `otlp` of the engine's crate calls this for
/// OpenTelemetry. Only the first call has an effect.
pub fn set_current_span(current: fn() -> Option<Traceparent>) {
    let _ = CURRENT_SPAN.set(current);
}

impl FromStr for Traceparent {
    type Err = InvalidTraceparent;

    fn from_str(text: &str) -> Result<Self, InvalidTraceparent> {
        parse(text).map_err(|why| {
            // The text may have any length.
            let text = text.chars().take(80).collect();
            InvalidTraceparent { text, why }
        })
    }
}

fn parse(text: &str) -> Result<Traceparent, &'static str> {
    let mut parts = text.splitn(5, '-');
    let mut hex = |digits: usize, why: &'static str| {
        let part = parts.next().unwrap_or_default();
        let is_valid =
            part.len() == digits && part.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
        if is_valid { u128::from_str_radix(part, 16).map_err(|_| why) } else { Err(why) }
    };
    let version = hex(2, "its version is not two digits")?;
    if version == 0xff {
        return Err("version ff is invalid");
    }
    let trace_id = hex(32, "its trace id is not 32 lower-case hexadecimal digits")?;
    let span_id = hex(16, "its span id is not 16 lower-case hexadecimal digits")?;
    let flags = hex(2, "its flags are not two digits")?;
    // Later versions may have more fields and are read as this one.
    if version == 0 && parts.next().is_some() {
        return Err("there are more characters after its flags");
    }
    // Checked above: 16 and 2 digits.
    let (span_id, flags) = (span_id as u64, flags as u8);
    Traceparent::new(trace_id, span_id, flags).ok_or("an id is all zeros")
}

impl fmt::Display for Traceparent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "00-{:032x}-{:016x}-{:02x}", self.trace_id, self.span_id, self.flags)
    }
}

impl Serialize for Traceparent {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const VALID: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    #[test]
    fn valid_traceparent_round_trips() {
        let read: Traceparent = VALID.parse().unwrap();
        assert_eq!(read.trace_id(), 0x4bf9_2f35_77b3_4da6_a3ce_929d_0e0e_4736);
        assert_eq!(read.span_id(), 0x00f0_67aa_0ba9_02b7);
        assert_eq!(read.flags(), 1);
        assert_eq!(read.to_string(), VALID);
        let later = VALID.replacen("00", "cc", 1) + "-what-the-future-will-be-like";
        assert_eq!(later.parse::<Traceparent>().unwrap(), read, "read as version 00");
    }

    #[test]
    fn invalid_traceparent_names_the_reason() {
        for (text, why) in [
            ("", "its version"),
            ("order-17", "its version"),
            (&VALID.replacen("00", "ff", 1), "version ff"),
            (&VALID.to_uppercase(), "lower-case"),
            (&VALID.replace("4bf9", "4bg9"), "trace id"),
            (&VALID.replace("4bf9", ""), "trace id"),
            (&VALID.replace("00f067aa0ba902b7", "+0f067aa0ba902b7"), "span id"),
            (&VALID.replace("4bf92f3577b34da6a3ce929d0e0e4736", &"0".repeat(32)), "zeros"),
            (&VALID.replace("00f067aa0ba902b7", &"0".repeat(16)), "zeros"),
            (&VALID[..VALID.len() - 1], "flags"),
            (&format!("{VALID}-x"), "more characters"),
            (&"é".repeat(1000), "its version"),
        ] {
            let error = text.parse::<Traceparent>().unwrap_err().to_string();
            assert!(error.contains(why), "{text}: {error}");
            assert!(error.len() < 500, "{error}");
        }
    }
}
