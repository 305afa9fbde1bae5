//! Zip archives of results.

use std::io::{self, Write};

use flate2::Crc;

/// The date of all entries, 1 January 1980, so that the same results are the same bytes.
const DATE: u16 = 0x21;
const VERSION: u16 = 20;
/// Names are UTF-8.
const FLAGS: u16 = 1 << 11;

/// Writes files into a zip archive without compressing them: images are compressed already.
pub struct ArchiveWriter<W> {
    writer: W,
    /// Bytes written so far.
    position: u64,
    directory: Vec<u8>,
    entries: u16,
}

impl<W: Write> ArchiveWriter<W> {
    /// An empty archive.
    pub fn new(writer: W) -> Self {
        ArchiveWriter { writer, position: 0, directory: Vec::new(), entries: 0 }
    }

    /// Adds a file. An error beyond 4 GB or 65,534 files.
    pub fn add(&mut self, name: &str, bytes: &[u8]) -> io::Result<()> {
        let too_large = || io::Error::other("a zip archive holds at most 4 GB and 65,534 files");
        let fits = |length: usize| u32::try_from(length).map_err(|_| too_large());
        let (size, start) = (fits(bytes.len())?, fits(self.position as usize)?);
        let name_length = u16::try_from(name.len()).map_err(|_| too_large())?;
        if self.entries >= u16::MAX - 1 {
            return Err(too_large());
        }
        let mut checksum = Crc::new();
        checksum.update(bytes);
        // What the header of an entry and its line in the directory have in common.
        let mut common = Vec::new();
        for value in [VERSION, FLAGS, 0, 0, DATE] {
            common.extend(value.to_le_bytes());
        }
        for value in [checksum.sum(), size, size] {
            common.extend(value.to_le_bytes());
        }
        common.extend(name_length.to_le_bytes());
        common.extend([0; 2]);
        let header = [b"PK\x03\x04", &common[..], name.as_bytes()].concat();
        self.writer.write_all(&header)?;
        self.writer.write_all(bytes)?;
        self.position += (header.len() + bytes.len()) as u64;
        self.directory.extend(b"PK\x01\x02");
        self.directory.extend(VERSION.to_le_bytes());
        self.directory.extend(common);
        // Comment, disk, attributes.
        self.directory.extend([0; 10]);
        self.directory.extend(start.to_le_bytes());
        self.directory.extend(name.as_bytes());
        self.entries += 1;
        Ok(())
    }

    /// Writes the directory and returns the writer.
    pub fn finish(mut self) -> io::Result<W> {
        let too_large = |_| io::Error::other("a zip archive holds at most 4 GB");
        let start = u32::try_from(self.position).map_err(too_large)?;
        let size = u32::try_from(self.directory.len()).map_err(too_large)?;
        let mut end = b"PK\x05\x06\0\0\0\0".to_vec();
        end.extend([self.entries; 2].map(u16::to_le_bytes).concat());
        end.extend([size, start].map(u32::to_le_bytes).concat());
        end.extend([0; 2]);
        self.writer.write_all(&self.directory)?;
        self.writer.write_all(&end)?;
        self.writer.flush()?;
        Ok(self.writer)
    }
}
