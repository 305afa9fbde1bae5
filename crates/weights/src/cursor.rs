//! A bounds-checked reader of little-endian fields.

use crate::error::Problem;

/// A byte slice and the position of the next field.
pub(crate) struct Cursor<'a> {
    bytes: &'a [u8],
    position: usize,
}

impl<'a> Cursor<'a> {
    /// Starts at `position`, which may lie beyond the end.
    pub(crate) fn new(bytes: &'a [u8], position: usize) -> Self {
        Cursor { bytes, position }
    }

    pub(crate) fn position(&self) -> usize {
        self.position
    }

    /// Number of bytes after the position.
    pub(crate) fn left(&self) -> usize {
        self.bytes.len().saturating_sub(self.position)
    }

    /// The next `length` bytes; `what` names them in the error.
    pub(crate) fn take(&mut self, length: u64, what: &str) -> Result<&'a [u8], Problem> {
        let found = self.left() as u64;
        if length > found {
            return Err(Problem::Truncated { what: what.into(), wanted: length, found });
        }
        let taken = &self.bytes[self.position..][..length as usize];
        self.position += taken.len();
        Ok(taken)
    }

    fn array<const N: usize>(&mut self, what: &str) -> Result<[u8; N], Problem> {
        let mut array = [0; N];
        array.copy_from_slice(self.take(N as u64, what)?);
        Ok(array)
    }

    pub(crate) fn u8(&mut self, what: &str) -> Result<u8, Problem> {
        Ok(self.array::<1>(what)?[0])
    }

    pub(crate) fn u16(&mut self, what: &str) -> Result<u16, Problem> {
        Ok(u16::from_le_bytes(self.array(what)?))
    }

    pub(crate) fn u32(&mut self, what: &str) -> Result<u32, Problem> {
        Ok(u32::from_le_bytes(self.array(what)?))
    }

    pub(crate) fn u64(&mut self, what: &str) -> Result<u64, Problem> {
        Ok(u64::from_le_bytes(self.array(what)?))
    }

    /// The bytes up to the next line feed, at most `limit`. Skips the line feed.
    pub(crate) fn line(&mut self, limit: u64, what: &'static str) -> Result<&'a [u8], Problem> {
        let rest = &self.bytes[self.position.min(self.bytes.len())..];
        let window = &rest[..rest.len().min(limit as usize + 1)];
        match window.iter().position(|&byte| byte == b'\n') {
            Some(length) => {
                self.position += length + 1;
                Ok(&window[..length])
            }
            None if window.len() as u64 > limit => {
                Err(Problem::Limit { what, limit, found: window.len() as u64 })
            }
            None => {
                let found = window.len() as u64;
                Err(Problem::Truncated { what: what.into(), wanted: found + 1, found })
            }
        }
    }
}

/// `bytes` as text, or an error that names the field.
pub(crate) fn utf8<'a>(bytes: &'a [u8], what: &str) -> Result<&'a str, Problem> {
    std::str::from_utf8(bytes).map_err(|_| {
        Problem::invalid(what, "UTF-8 text", format!("{:?}", String::from_utf8_lossy(bytes)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_beyond_the_end_are_errors() {
        let mut cursor = Cursor::new(&[1, 0, 7, b'a', b'\n', 9], 0);
        assert_eq!(cursor.u16("x").unwrap(), 1);
        assert_eq!(cursor.u8("x").unwrap(), 7);
        assert_eq!(cursor.line(10, "x").unwrap(), b"a");
        assert!(matches!(cursor.u32("x"), Err(Problem::Truncated { wanted: 4, found: 1, .. })));
        assert!(cursor.take(u64::MAX, "x").is_err());
        assert!(matches!(cursor.line(10, "x"), Err(Problem::Truncated { .. })));
        assert!(matches!(cursor.line(0, "x"), Err(Problem::Limit { .. })));
        assert_eq!(Cursor::new(&[1], 5).left(), 0);
        assert!(Cursor::new(&[1], usize::MAX).u8("x").is_err());
    }
}
