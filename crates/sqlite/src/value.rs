//! Reads stored values so that no damaged one stops a reader.
//!
//! A text that is not UTF-8 is shown with the bad bytes replaced, a number out of range as the
//! nearest one. The tables refuse such values, but a damaged file or a program that turns their
//! checks off can bring them in.

use jiff::Timestamp;
use rusqlite::Row;
use rusqlite::types::ValueRef;
use task_engine_core::json::Json;

use crate::moment::timestamp;

/// Reads a column.
pub(crate) fn read<T: FromColumn>(row: &Row<'_>, column: usize) -> rusqlite::Result<T> {
    Ok(T::of(row.get_ref(column)?))
}

/// A value that is read from a column of any type.
pub(crate) trait FromColumn {
    fn of(value: ValueRef<'_>) -> Self;
}

impl FromColumn for String {
    fn of(value: ValueRef<'_>) -> Self {
        match value {
            ValueRef::Null => Self::new(),
            ValueRef::Integer(number) => number.to_string(),
            ValueRef::Real(number) => number.to_string(),
            ValueRef::Text(bytes) | ValueRef::Blob(bytes) => {
                Self::from_utf8_lossy(bytes).into_owned()
            }
        }
    }
}

/// The bytes of a text, to be checked by the caller.
impl FromColumn for Vec<u8> {
    fn of(value: ValueRef<'_>) -> Self {
        match value {
            ValueRef::Text(bytes) | ValueRef::Blob(bytes) => bytes.to_owned(),
            other => String::of(other).into_bytes(),
        }
    }
}

impl FromColumn for i64 {
    fn of(value: ValueRef<'_>) -> Self {
        match value {
            ValueRef::Integer(number) => number,
            ValueRef::Real(number) => number as Self,
            other => String::of(other).parse().unwrap_or(0),
        }
    }
}

impl FromColumn for i32 {
    fn of(value: ValueRef<'_>) -> Self {
        let nearest = i64::of(value).clamp(Self::MIN.into(), Self::MAX.into());
        Self::try_from(nearest).unwrap_or(0)
    }
}

impl FromColumn for u32 {
    fn of(value: ValueRef<'_>) -> Self {
        Self::try_from(i64::of(value).clamp(0, Self::MAX.into())).unwrap_or(0)
    }
}

impl FromColumn for f64 {
    fn of(value: ValueRef<'_>) -> Self {
        match value {
            ValueRef::Real(number) => number,
            other => i64::of(other) as Self,
        }
    }
}

impl FromColumn for Timestamp {
    fn of(value: ValueRef<'_>) -> Self {
        timestamp(i64::of(value))
    }
}

impl FromColumn for Json {
    fn of(value: ValueRef<'_>) -> Self {
        Self::from_store(String::of(value))
    }
}

impl FromColumn for bool {
    fn of(value: ValueRef<'_>) -> Self {
        i64::of(value) != 0
    }
}

impl<T: FromColumn> FromColumn for Option<T> {
    fn of(value: ValueRef<'_>) -> Self {
        match value {
            ValueRef::Null => None,
            some => Some(T::of(some)),
        }
    }
}
