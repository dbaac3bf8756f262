//! Reads stored values so that no damaged one stops a reader.
//!
//! A text that is not UTF-8 is shown with the bad bytes replaced, a time beyond the calendar as the
//! nearest one. The tables refuse such values, but a damaged page or an operator without
//! constraints can bring them in.

use std::error::Error;

use jiff::Timestamp;
use task_engine_core::json::Json;
use tokio_postgres::Row;
use tokio_postgres::row::RowIndex;
use tokio_postgres::types::private::BytesMut;
use tokio_postgres::types::{FromSql, IsNull, ToSql, Type, accepts, to_sql_checked};

use crate::json::JsonOut;

type BoxError = Box<dyn Error + Sync + Send>;

/// Reads a column.
pub(crate) fn read<T: FromColumn>(row: &Row, column: impl RowIndex + std::fmt::Display) -> T {
    T::of(row.get(column))
}

/// A value that is read from a column.
pub(crate) trait FromColumn {
    /// The type that the driver decodes.
    type Raw: for<'a> FromSql<'a>;

    fn of(raw: Self::Raw) -> Self;
}

macro_rules! as_it_is {
    ($($type:ty),+) => {
        $(impl FromColumn for $type {
            type Raw = Self;

            fn of(raw: Self) -> Self {
                raw
            }
        })+
    };
}

as_it_is!(bool, i32, i64, f64, Option<i32>, Option<i64>, Option<f64>, Vec<i32>, Vec<i64>);

macro_rules! by_way_of {
    ($($type:ty: $raw:ty),+) => {
        $(impl FromColumn for $type {
            type Raw = $raw;

            fn of(raw: $raw) -> Self {
                raw.0
            }
        }

        impl FromColumn for Option<$type> {
            type Raw = Option<$raw>;

            fn of(raw: Option<$raw>) -> Self {
                raw.map(|raw| raw.0)
            }
        }

        impl FromColumn for Vec<$type> {
            type Raw = Vec<$raw>;

            fn of(raw: Vec<$raw>) -> Self {
                raw.into_iter().map(|raw| raw.0).collect()
            }
        })+
    };
}

by_way_of!(String: LossyText, Timestamp: NearestTime, Json: JsonOut);

/// A text.
#[derive(Debug)]
pub(crate) struct LossyText(String);

impl<'a> FromSql<'a> for LossyText {
    fn from_sql(_: &Type, raw: &'a [u8]) -> Result<Self, BoxError> {
        Ok(Self(String::from_utf8_lossy(raw).into_owned()))
    }

    accepts!(TEXT, VARCHAR, NAME);
}

/// A time.
#[derive(Debug)]
pub(crate) struct NearestTime(Timestamp);

impl<'a> FromSql<'a> for NearestTime {
    fn from_sql(of: &Type, raw: &'a [u8]) -> Result<Self, BoxError> {
        /// The year 2000, from which the server counts, after 1970.
        const EPOCH_SECS: i64 = 946_684_800;
        let micros = RawTime::from_sql(of, raw)?.0.saturating_add(EPOCH_SECS * 1_000_000);
        let nearest = if micros < 0 { Timestamp::MIN } else { Timestamp::MAX };
        Ok(Self(Timestamp::from_microsecond(micros).unwrap_or(nearest)))
    }

    accepts!(TIMESTAMPTZ);
}

/// A time as the server has it, to be sent back exactly: microseconds since the
/// year 2000; the lowest and the highest number are its infinities.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct RawTime(pub(crate) i64);

impl<'a> FromSql<'a> for RawTime {
    fn from_sql(_: &Type, raw: &'a [u8]) -> Result<Self, BoxError> {
        Ok(Self(i64::from_be_bytes(raw.try_into()?)))
    }

    accepts!(TIMESTAMPTZ);
}

impl ToSql for RawTime {
    fn to_sql(&self, _: &Type, out: &mut BytesMut) -> Result<IsNull, BoxError> {
        out.extend_from_slice(&self.0.to_be_bytes());
        Ok(IsNull::No)
    }

    accepts!(TIMESTAMPTZ);
    to_sql_checked!();
}
