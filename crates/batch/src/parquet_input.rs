//! Tables in Parquet: pictures as bytes or paths, ids, boxes.

use std::fs::File;
use std::path::{Path, PathBuf};

use parquet::basic::Type as Physical;
use parquet::column::reader::ColumnReader;
use parquet::data_type::ByteArray;
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::record::Field;
use parquet::schema::types::Type;

use crate::input::{Columns, InputError, Item, Source, unreadable};

/// Default names of the picture column. The first one that the table has is used.
const PICTURES: [&str; 3] = ["bytes", "image", "uri"];

/// The default name that holds paths instead of bytes.
const PATHS: &str = "uri";

fn wrong(path: &Path, reason: impl ToString) -> InputError {
    InputError::Table { path: path.to_owned(), reason: reason.to_string() }
}

fn open(path: &Path) -> Result<SerializedFileReader<File>, InputError> {
    let file = File::open(path).map_err(|source| unreadable(path, source))?;
    SerializedFileReader::new(file).map_err(|error| wrong(path, error))
}

/// Adds the rows of a table.
pub(crate) fn add(path: &Path, columns: &Columns, items: &mut Vec<Item>) -> Result<(), InputError> {
    let reader = open(path)?;
    let layout = Layout::of(path, &reader, columns)?;
    let projection = layout.projection(&reader);
    for group in 0..reader.num_row_groups() {
        let rows = reader.get_row_group(group).map_err(|error| wrong(path, error))?;
        let rows =
            rows.get_row_iter(Some(projection.clone())).map_err(|error| wrong(path, error))?;
        for (row, fields) in rows.enumerate() {
            let fields = fields.map_err(|error| wrong(path, error))?;
            let get = |name: &str| fields.get_column_iter().find(|(known, _)| *known == name);
            items.push(layout.item(path, (group, row), |name| get(name).map(|(_, field)| field))?);
        }
    }
    Ok(())
}

/// The columns of a table that are read.
struct Layout {
    id: Option<String>,
    boxes: Option<String>,
    picture: Picture,
}

enum Picture {
    /// Column of paths, relative to the table's folder.
    Paths(String),
    /// Column of bytes, and its number among the leaves.
    Bytes { leaf: usize },
}

impl Layout {
    fn of(
        path: &Path,
        reader: &SerializedFileReader<File>,
        columns: &Columns,
    ) -> Result<Self, InputError> {
        let schema = reader.metadata().file_metadata().schema_descr();
        let names: Vec<String> =
            schema.root_schema().get_fields().iter().map(|field| field.name().to_owned()).collect();
        let known = |wanted: &String| {
            let missing =
                || wrong(path, format!("no column {wanted:?}; there are {}", names.join(", ")));
            names.contains(wanted).then(|| wanted.clone()).ok_or_else(missing)
        };
        let usual =
            || PICTURES.iter().map(|name| (*name).to_owned()).find(|name| names.contains(name));
        let picture = match &columns.picture {
            Some(name) => known(name)?,
            None => usual().ok_or_else(|| {
                wrong(path, format!("no column of pictures; there are {}", names.join(", ")))
            })?,
        };
        let leaf =
            schema.columns().iter().position(|leaf| leaf.path().parts() == [picture.clone()]);
        let leaf = leaf.filter(|leaf| schema.column(*leaf).physical_type() == Physical::BYTE_ARRAY);
        let leaf = leaf
            .ok_or_else(|| wrong(path, format!("column {picture:?} holds no bytes and no text")))?;
        let is_text = schema.column(leaf).logical_type_ref().is_some()
            || schema.column(leaf).converted_type() == parquet::basic::ConvertedType::UTF8;
        let picture = if is_text || picture == PATHS {
            Picture::Paths(picture)
        } else {
            Picture::Bytes { leaf }
        };
        let id = match &columns.id {
            Some(name) => Some(known(name)?),
            None => names.iter().find(|name| *name == "id").cloned(),
        };
        Ok(Layout { id, boxes: columns.boxes.as_ref().map(known).transpose()?, picture })
    }

    /// The schema of the columns that are read for every row; pictures as bytes are read when they are decoded.
    fn projection(&self, reader: &SerializedFileReader<File>) -> Type {
        let path = match &self.picture {
            Picture::Paths(name) => Some(name),
            Picture::Bytes { .. } => None,
        };
        let wanted: Vec<&String> =
            [self.id.as_ref(), self.boxes.as_ref(), path].into_iter().flatten().collect();
        let root = reader.metadata().file_metadata().schema_descr().root_schema();
        let first = root.get_fields().first().map(|field| field.name().to_owned());
        let fields = root.get_fields().iter();
        let mut kept: Vec<_> =
            fields.filter(|field| wanted.contains(&&field.name().to_owned())).cloned().collect();
        if kept.is_empty() {
            // Rows without a column are not counted: the first is read, and not looked at.
            kept = root
                .get_fields()
                .iter()
                .filter(|field| Some(field.name()) == first.as_deref())
                .cloned()
                .collect();
        }
        Type::group_type_builder(root.name())
            .with_fields(kept)
            .build()
            .expect("fields of a valid schema")
    }

    fn item<'f>(
        &self,
        path: &Path,
        (group, row): (usize, usize),
        field: impl Fn(&str) -> Option<&'f Field>,
    ) -> Result<Item, InputError> {
        let text = |name: &String| match field(name) {
            Some(Field::Str(text)) => Ok(text.clone()),
            Some(Field::Bytes(bytes)) => Ok(String::from_utf8_lossy(bytes.data()).into_owned()),
            Some(Field::Long(number)) => Ok(number.to_string()),
            Some(Field::Int(number)) => Ok(number.to_string()),
            _ => Err(wrong(
                path,
                format!("row {row}: column {name:?} holds no text and no whole number"),
            )),
        };
        let source = match &self.picture {
            Picture::Paths(name) => {
                let folder = path.parent().unwrap_or(Path::new(""));
                Source::File(folder.join(text(name)?))
            }
            Picture::Bytes { leaf } => {
                Source::Cell { table: path.to_owned(), column: *leaf, group, row }
            }
        };
        let id = match (&self.id, &source) {
            (Some(name), _) => text(name)?,
            (None, Source::File(file)) => file.display().to_string(),
            (None, _) => format!("{}#{group}.{row}", path.display()),
        };
        let boxes = match self.boxes.as_ref().and_then(|name| field(name)) {
            None | Some(Field::Null) => Vec::new(),
            Some(value) => boxes(value).ok_or_else(|| {
                wrong(path, format!("row {row}: boxes are lists of four numbers"))
            })?,
        };
        Ok(Item { id, boxes, source })
    }
}

/// A list of boxes, or one box.
fn boxes(field: &Field) -> Option<Vec<[f32; 4]>> {
    let Field::ListInternal(list) = field else { return None };
    if list.elements().is_empty() {
        return Some(Vec::new());
    }
    if let Some(one) = numbers(field) {
        return Some(vec![one.try_into().ok()?]);
    }
    list.elements().iter().map(|element| numbers(element)?.try_into().ok()).collect()
}

/// A list of numbers.
#[expect(clippy::wildcard_enum_match_arm, reason = "boxes have four kinds of numbers")]
fn numbers(field: &Field) -> Option<Vec<f32>> {
    let Field::ListInternal(list) = field else { return None };
    let number = |element: &Field| match element {
        Field::Float(number) => Some(*number),
        Field::Double(number) => Some(*number as f32),
        Field::Int(number) => Some(*number as f32),
        Field::Long(number) => Some(*number as f32),
        _ => None,
    };
    list.elements().iter().map(number).collect()
}

/// A table, a column and a group of rows.
type Place = (PathBuf, usize, usize);

/// Cells of tables, a group of rows at a time.
#[derive(Default)]
pub(crate) struct Cells {
    /// The cells that are held.
    held: Option<(Place, Vec<Option<ByteArray>>)>,
}

impl Cells {
    /// The bytes of a cell.
    pub(crate) fn cell(
        &mut self,
        table: &Path,
        column: usize,
        group: usize,
        row: usize,
    ) -> Result<Vec<u8>, String> {
        let key = (table.to_owned(), column, group);
        if self.held.as_ref().is_none_or(|(held, _)| *held != key) {
            self.held = None;
            self.held = Some((key, read_column(table, column, group)?));
        }
        let cells = self.held.as_ref().map_or(&[][..], |(_, cells)| cells);
        match cells.get(row) {
            Some(Some(bytes)) => Ok(bytes.data().to_vec()),
            Some(None) => Err("the row has no picture".to_owned()),
            None => Err("the table has changed".to_owned()),
        }
    }
}

fn read_column(
    table: &Path,
    column: usize,
    group: usize,
) -> Result<Vec<Option<ByteArray>>, String> {
    let failed = |error: parquet::errors::ParquetError| error.to_string();
    let reader = open(table).map_err(|error| error.to_string())?;
    let rows = reader.get_row_group(group).map_err(failed)?;
    let ColumnReader::ByteArrayColumnReader(mut cells) =
        rows.get_column_reader(column).map_err(failed)?
    else {
        return Err("the table has changed".to_owned());
    };
    let count = usize::try_from(rows.metadata().num_rows()).unwrap_or(0);
    let (mut levels, mut values) = (Vec::new(), Vec::new());
    let optional = rows.metadata().column(column).column_descr().max_def_level() > 0;
    while values.len() < count {
        let wanted = optional.then_some(&mut levels);
        let (records, _, _) =
            cells.read_records(count, wanted, None, &mut values).map_err(failed)?;
        if records == 0 {
            break;
        }
    }
    if !optional {
        return Ok(values.into_iter().map(Some).collect());
    }
    let mut values = values.into_iter();
    Ok(levels.into_iter().map(|level| if level > 0 { values.next() } else { None }).collect())
}
