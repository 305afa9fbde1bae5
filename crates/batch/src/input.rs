//! Pictures of a run: files, lists, rows of Parquet, members of tar archives.

use std::collections::HashSet;
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use cutout_imaging::is_picture_name;

use crate::parquet_input;

/// Most bytes of a picture file inside an archive or a table.
const MAX_PICTURE: u64 = 1 << 30;

/// Where the columns of Parquet inputs are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Columns {
    /// The id; by default `id`, and without one the file and the row.
    pub id: Option<String>,
    /// The picture: bytes of a file or a path. By default `bytes`, `image` or `uri`, the first there is.
    pub picture: Option<String>,
    /// Boxes of each picture: a list of `[left, top, right, bottom]`, or one such box.
    pub boxes: Option<String>,
}

/// Why inputs cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum InputError {
    /// The system refuses.
    #[error("{}: {source}", path.display())]
    Read {
        /// The input.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// The input holds no pictures.
    #[error("{0}: no pictures there")]
    Nothing(String),
    /// The pattern is wrong.
    #[error("{pattern}: {reason}")]
    Pattern {
        /// The pattern.
        pattern: String,
        /// What is wrong.
        reason: String,
    },
    /// The table is wrong.
    #[error("{}: {reason}", path.display())]
    Table {
        /// The table.
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },
    /// Boxes are asked for, and the input has none.
    #[error("{0}: boxes come from a column of .parquet tables, which this is not")]
    NoBoxes(String),
    /// The same id twice.
    #[error("{0}: twice among the inputs; ids must differ")]
    Twice(String),
}

/// A picture of a run.
#[derive(Clone, Debug, PartialEq)]
pub struct Item {
    /// Its id: the path, `archive.tar/member`, or the id of its row.
    pub id: String,
    /// Its boxes, if the table has a column of them: left, top, right, bottom.
    pub boxes: Vec<[f32; 4]>,
    pub(crate) source: Source,
}

/// Where the bytes of a picture are.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Source {
    File(PathBuf),
    /// A part of a file.
    Part {
        file: PathBuf,
        offset: u64,
        length: u64,
    },
    /// A cell of a table.
    Cell {
        table: PathBuf,
        column: usize,
        group: usize,
        row: usize,
    },
}

/// All pictures of the inputs, in a fixed order. An input is a folder (with its subfolders), a pattern with `*`, a `.txt` file
/// with a path on each line, a `.parquet` table, a `.tar` archive, or a picture.
pub fn collect(inputs: &[String], columns: &Columns) -> Result<Vec<Item>, InputError> {
    let mut items = Vec::new();
    for input in inputs {
        let before = items.len();
        add(input, columns, &mut items)?;
        if items.len() == before {
            return Err(InputError::Nothing(input.clone()));
        }
    }
    let mut seen = HashSet::with_capacity(items.len());
    match items.iter().find(|item| !seen.insert(item.id.as_str())) {
        Some(twice) => Err(InputError::Twice(twice.id.clone())),
        None => Ok(items),
    }
}

fn add(input: &str, columns: &Columns, items: &mut Vec<Item>) -> Result<(), InputError> {
    let path = Path::new(input);
    if !path.exists() && input.contains(['*', '?', '[']) {
        return add_pattern(input, columns, items);
    }
    let found = fs::metadata(path).map_err(|source| unreadable(path, source))?;
    let extension = extension(path);
    if columns.boxes.is_some() && (found.is_dir() || extension != "parquet") {
        return Err(InputError::NoBoxes(input.to_owned()));
    }
    if found.is_dir() {
        return add_folder(path, items);
    }
    match extension.as_str() {
        "txt" => add_list(path, items),
        "parquet" => parquet_input::add(path, columns, items),
        "tar" => add_archive(path, items),
        _ => {
            items.push(file_item(path.to_owned()));
            Ok(())
        }
    }
}

fn add_pattern(pattern: &str, columns: &Columns, items: &mut Vec<Item>) -> Result<(), InputError> {
    let wrong = |reason: String| InputError::Pattern { pattern: pattern.to_owned(), reason };
    let found = glob::glob(pattern).map_err(|error| wrong(error.to_string()))?;
    let mut paths =
        found.collect::<Result<Vec<_>, _>>().map_err(|error| wrong(error.to_string()))?;
    paths.sort();
    paths.iter().try_for_each(|path| add(&path.display().to_string(), columns, items))
}

/// The pictures of a folder and its subfolders, by name. Links to folders are not followed, so that none is entered twice.
fn add_folder(folder: &Path, items: &mut Vec<Item>) -> Result<(), InputError> {
    let entries = fs::read_dir(folder).map_err(|source| unreadable(folder, source))?;
    let mut paths = Vec::new();
    for entry in entries {
        paths.push(entry.map_err(|source| unreadable(folder, source))?.path());
    }
    paths.sort();
    for path in paths {
        let is_hidden =
            path.file_name().is_some_and(|name| name.to_string_lossy().starts_with('.'));
        if is_hidden {
            continue;
        }
        let is_folder = fs::symlink_metadata(&path).is_ok_and(|found| found.is_dir());
        if is_folder {
            add_folder(&path, items)?;
        } else if is_picture_name(&path) {
            items.push(file_item(path));
        }
    }
    Ok(())
}

/// The paths of a list, relative to its folder.
fn add_list(list: &Path, items: &mut Vec<Item>) -> Result<(), InputError> {
    let file = File::open(list).map_err(|source| unreadable(list, source))?;
    let folder = list.parent().unwrap_or(Path::new(""));
    for line in BufReader::new(file).lines() {
        let line = line.map_err(|source| unreadable(list, source))?;
        let line = line.trim();
        if !line.is_empty() {
            items.push(file_item(folder.join(line)));
        }
    }
    Ok(())
}

/// The pictures of a tar archive, as WebDataset has them.
fn add_archive(archive: &Path, items: &mut Vec<Item>) -> Result<(), InputError> {
    let file = File::open(archive).map_err(|source| unreadable(archive, source))?;
    let mut tar = tar::Archive::new(BufReader::new(file));
    let entries = tar.entries().map_err(|source| unreadable(archive, source))?;
    for entry in entries {
        let entry = entry.map_err(|source| unreadable(archive, source))?;
        let member = entry.path().map_err(|source| unreadable(archive, source))?.into_owned();
        if entry.header().entry_type().is_file() && is_picture_name(&member) {
            let (offset, length) = (entry.raw_file_position(), entry.size());
            items.push(Item {
                id: format!("{}/{}", archive.display(), member.display()),
                boxes: Vec::new(),
                source: Source::Part { file: archive.to_owned(), offset, length },
            });
        }
    }
    Ok(())
}

pub(crate) fn file_item(path: PathBuf) -> Item {
    Item { id: path.display().to_string(), boxes: Vec::new(), source: Source::File(path) }
}

pub(crate) fn unreadable(path: &Path, source: io::Error) -> InputError {
    InputError::Read { path: path.to_owned(), source }
}

fn extension(path: &Path) -> String {
    path.extension().unwrap_or_default().to_string_lossy().to_ascii_lowercase()
}

/// Reader of the bytes of items that are not files of their own.
#[derive(Default)]
pub(crate) struct Bytes {
    tables: parquet_input::Cells,
}

impl Bytes {
    /// The bytes of an item; `None` for a file of its own.
    pub(crate) fn of(&mut self, item: &Item) -> Result<Option<Vec<u8>>, String> {
        match &item.source {
            Source::File(_) => Ok(None),
            Source::Part { file, offset, length } => {
                read_part(file, *offset, *length).map(Some).map_err(|error| error.to_string())
            }
            Source::Cell { table, column, group, row } => {
                self.tables.cell(table, *column, *group, *row).map(Some)
            }
        }
    }
}

fn read_part(path: &Path, offset: u64, length: u64) -> io::Result<Vec<u8>> {
    if length > MAX_PICTURE {
        let text = format!("{length} bytes are more than the {MAX_PICTURE} allowed");
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, text));
    }
    let mut file = File::open(path)?;
    file.seek(SeekFrom::Start(offset))?;
    let mut bytes = Vec::new();
    file.take(length).read_to_end(&mut bytes)?;
    if bytes.len() as u64 != length {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok(bytes)
}
