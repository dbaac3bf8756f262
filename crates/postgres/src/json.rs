//! JSON text to and from `jsonb`, without a tree in between.

use std::error::Error;

use task_engine_core::json::Json;
use tokio_postgres::types::private::BytesMut;
use tokio_postgres::types::{FromSql, IsNull, ToSql, Type, accepts, to_sql_checked};

/// The version byte of `jsonb`'s binary form.
const VERSION: u8 = 1;

#[derive(Debug)]
pub(crate) struct JsonIn<'a>(pub(crate) &'a str);

impl ToSql for JsonIn<'_> {
    fn to_sql(&self, _: &Type, out: &mut BytesMut) -> Result<IsNull, Box<dyn Error + Sync + Send>> {
        out.extend_from_slice(&[VERSION]);
        out.extend_from_slice(self.0.as_bytes());
        Ok(IsNull::No)
    }

    accepts!(JSONB);
    to_sql_checked!();
}

/// JSON to be shown: bytes that are not UTF-8 are replaced.
#[derive(Debug)]
pub(crate) struct JsonOut(pub(crate) Json);

impl<'a> FromSql<'a> for JsonOut {
    fn from_sql(of: &Type, raw: &'a [u8]) -> Result<Self, Box<dyn Error + Sync + Send>> {
        let text = JsonBytes::from_sql(of, raw)?.0;
        Ok(Self(Json::from_store(String::from_utf8_lossy(text).into_owned())))
    }

    accepts!(JSONB);
}

/// JSON as it is stored, to be checked by the caller.
#[derive(Debug)]
pub(crate) struct JsonBytes<'a>(pub(crate) &'a [u8]);

impl<'a> FromSql<'a> for JsonBytes<'a> {
    fn from_sql(_: &Type, raw: &'a [u8]) -> Result<Self, Box<dyn Error + Sync + Send>> {
        match raw.split_first() {
            Some((&VERSION, text)) => Ok(Self(text)),
            _ => Err("jsonb of an unknown version".into()),
        }
    }

    accepts!(JSONB);
}
