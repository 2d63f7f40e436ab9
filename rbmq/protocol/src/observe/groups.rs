//! Rows for observers: the groups of workers, in the form of GROUP_ROWS.

use rocketbufs::fields::Reader;

use super::fields::Row;
use crate::DecodeError;
use crate::groups::{GroupStats, get_row, put_row};

impl Row for GroupStats {
    fn put(&self, b: &mut Vec<u8>) {
        put_row(b, self);
    }

    fn get(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        get_row(r)
    }
}
