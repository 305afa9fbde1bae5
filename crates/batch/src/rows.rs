//! The table of results: one row per instance.

use std::sync::Arc;

use parquet::basic::{Compression, ZstdLevel};
use parquet::data_type::{ByteArray, ByteArrayType, DataType, FloatType, Int32Type, Int64Type};
use parquet::errors::Result;
use parquet::file::metadata::KeyValue;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use parquet::schema::parser::parse_message_type;

/// The columns, in Parquet's notation. A picture without any instance has one row, with `instance` -1; a picture that failed
/// has one with an `error`.
pub const COLUMNS: &str = "message instances {
  required binary id (UTF8);
  required int32 shard;
  required int32 instance;
  optional binary phrase (UTF8);
  optional float score;
  optional float presence;
  optional float predicted_iou;
  optional float stability;
  optional int64 area;
  optional group bbox (LIST) { repeated group list { required float element; } }
  optional int32 height;
  optional int32 width;
  optional binary rle;
  optional binary polygon;
  optional binary error (UTF8);
  required binary model (UTF8);
  required binary options_hash (UTF8);
}";

/// One row.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Row {
    /// Id of the picture.
    pub id: String,
    /// Number of the instance in its picture, from 0 on; -1 if there is none.
    pub instance: i32,
    /// The phrase that found it.
    pub phrase: Option<String>,
    /// Score of a found object; of other masks the predicted IoU.
    pub score: Option<f32>,
    /// Probability that the picture has any object of the phrase.
    pub presence: Option<f32>,
    /// IoU predicted by the model.
    pub predicted_iou: Option<f32>,
    /// Stability of an automatic mask.
    pub stability: Option<f32>,
    /// Pixels set.
    pub area: Option<i64>,
    /// Left, top, width, height.
    pub bbox: Option<[f32; 4]>,
    /// Height of the picture.
    pub height: Option<i32>,
    /// Width of the picture.
    pub width: Option<i32>,
    /// COCO's compressed run lengths.
    pub rle: Option<String>,
    /// Outlines in well-known binary, if they are asked for.
    pub polygon: Option<Vec<u8>>,
    /// Why the picture has no instances.
    pub error: Option<String>,
}

/// What all rows of a run have in common.
#[derive(Clone, Debug)]
pub(crate) struct Common {
    pub(crate) shard: u32,
    pub(crate) model: String,
    pub(crate) options_hash: String,
    /// Metadata of the file.
    pub(crate) notes: Vec<(String, String)>,
}

/// Rows as a Parquet file.
pub(crate) fn encode(rows: &[Row], common: &Common) -> Result<Vec<u8>> {
    let schema = Arc::new(parse_message_type(COLUMNS)?);
    let note = |(key, value): &(String, String)| KeyValue::new(key.clone(), value.clone());
    let properties = WriterProperties::builder()
        .set_created_by(format!("cutout version {}", env!("CARGO_PKG_VERSION")))
        .set_compression(Compression::ZSTD(ZstdLevel::default()))
        .set_key_value_metadata(Some(common.notes.iter().map(note).collect()))
        .build();
    let mut file = SerializedFileWriter::new(Vec::new(), schema, Arc::new(properties))?;
    write_columns(file.next_row_group()?, rows, common)?;
    file.into_inner()
}

/// Writes all columns, in the order of [`COLUMNS`].
fn write_columns(
    group: SerializedRowGroupWriter<'_, Vec<u8>>,
    rows: &[Row],
    common: &Common,
) -> Result<()> {
    let mut columns = Table { group, rows };
    columns.text(|row| row.id.clone())?;
    columns.whole(|_| common.shard.cast_signed())?;
    columns.whole(|row| row.instance)?;
    columns.optional::<ByteArrayType>(|row| row.phrase.as_deref().map(ByteArray::from))?;
    columns.optional::<FloatType>(|row| row.score)?;
    columns.optional::<FloatType>(|row| row.presence)?;
    columns.optional::<FloatType>(|row| row.predicted_iou)?;
    columns.optional::<FloatType>(|row| row.stability)?;
    columns.optional::<Int64Type>(|row| row.area)?;
    columns.boxes()?;
    columns.optional::<Int32Type>(|row| row.height)?;
    columns.optional::<Int32Type>(|row| row.width)?;
    columns.optional::<ByteArrayType>(|row| row.rle.as_deref().map(ByteArray::from))?;
    columns.optional::<ByteArrayType>(|row| row.polygon.clone().map(ByteArray::from))?;
    columns.optional::<ByteArrayType>(|row| row.error.as_deref().map(ByteArray::from))?;
    columns.text(|_| common.model.clone())?;
    columns.text(|_| common.options_hash.clone())?;
    columns.group.close()?;
    Ok(())
}

/// Writer of one column after the other.
struct Table<'r, 'w> {
    group: SerializedRowGroupWriter<'w, Vec<u8>>,
    rows: &'r [Row],
}

impl Table<'_, '_> {
    fn write<T: DataType>(
        &mut self,
        values: &[T::T],
        definition: Option<&[i16]>,
        repetition: Option<&[i16]>,
    ) -> Result<()> {
        let Some(mut column) = self.group.next_column()? else {
            return Err(parquet::errors::ParquetError::General("no such column".to_owned()));
        };
        column.typed::<T>().write_batch(values, definition, repetition)?;
        column.close()
    }

    fn text(&mut self, of: impl Fn(&Row) -> String) -> Result<()> {
        let values: Vec<ByteArray> =
            self.rows.iter().map(|row| ByteArray::from(of(row).into_bytes())).collect();
        self.write::<ByteArrayType>(&values, None, None)
    }

    fn whole(&mut self, of: impl Fn(&Row) -> i32) -> Result<()> {
        let values: Vec<i32> = self.rows.iter().map(of).collect();
        self.write::<Int32Type>(&values, None, None)
    }

    fn optional<T: DataType>(&mut self, of: impl Fn(&Row) -> Option<T::T>) -> Result<()> {
        let cells: Vec<Option<T::T>> = self.rows.iter().map(of).collect();
        let levels: Vec<i16> = cells.iter().map(|cell| i16::from(cell.is_some())).collect();
        let values: Vec<T::T> = cells.into_iter().flatten().collect();
        self.write::<T>(&values, Some(&levels), None)
    }

    fn boxes(&mut self) -> Result<()> {
        let (mut values, mut definition, mut repetition) = (Vec::new(), Vec::new(), Vec::new());
        for row in self.rows {
            match row.bbox {
                Some(numbers) => {
                    values.extend(numbers);
                    definition.extend([2; 4]);
                    repetition.extend([0, 1, 1, 1]);
                }
                None => {
                    definition.push(0);
                    repetition.push(0);
                }
            }
        }
        self.write::<FloatType>(&values, Some(&definition), Some(&repetition))
    }
}
