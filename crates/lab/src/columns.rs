//! The figures as an Apache Parquet file: a column for each figure, a row for each choice, for data frames and SQL
//! engines.
//!
//! The file has one row group, no compression, plain or dictionary pages: there are some hundred rows at most. The
//! crate's own column writers write it, so that neither Arrow nor a codec is built for it.

use std::io::Write;
use std::sync::Arc;

use parquet::data_type::{BoolType, ByteArray, ByteArrayType, DataType, DoubleType, Int64Type};
use parquet::errors::Result;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use parquet::schema::parser::parse_message_type;

use crate::{ChunkerChoice, Estimate};

/// The columns, with the same names and types as in the JSON and the CSV; sizes in bytes.
const SCHEMA: &str = "message estimate {
    required binary chunker (string);
    required int64 size;
    required int64 bytes;
    required int64 chunks;
    required double chunk_bytes_mean;
    required double unique_chunks;
    required double unique_bytes;
    required double unique_bytes_error;
    required double ratio;
    required double ratio_error;
    required double ratio_meta;
    required double metadata_bytes;
    required double gain_bytes;
    required boolean exact;
}";

/// A number as the column's type, which has 63 bits; a larger one becomes the largest.
fn whole(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

type Row = (ChunkerChoice, Estimate);
type Groups<'a, W> = SerializedRowGroupWriter<'a, W>;

/// Writes the figures of `rows` to `out` as a Parquet file.
///
/// # Errors
/// Errors of `out`; the file is then not valid.
pub fn parquet(rows: &[Row], out: impl Write + Send) -> Result<()> {
    let schema = Arc::new(parse_message_type(SCHEMA)?);
    let properties = Arc::new(WriterProperties::builder().build());
    let mut file = SerializedFileWriter::new(out, schema, properties)?;
    let mut group = file.next_row_group()?;
    let name = |(choice, _): &Row| ByteArray::from(choice.chunker.as_str());
    column::<ByteArrayType, _>(&mut group, rows, name)?;
    column::<Int64Type, _>(&mut group, rows, |(choice, _)| choice.mean.into())?;
    column::<Int64Type, _>(&mut group, rows, |(_, one)| whole(one.bytes))?;
    column::<Int64Type, _>(&mut group, rows, |(_, one)| whole(one.chunks))?;
    let doubles: [fn(&Estimate) -> f64; 9] = [
        Estimate::chunk_bytes_mean,
        |one| one.unique_chunks,
        |one| one.unique_bytes,
        |one| one.unique_bytes_error,
        Estimate::ratio,
        Estimate::ratio_error,
        Estimate::ratio_meta,
        Estimate::metadata_bytes,
        Estimate::gain_bytes,
    ];
    for value in doubles {
        column::<DoubleType, _>(&mut group, rows, |(_, one)| value(one))?;
    }
    column::<BoolType, _>(&mut group, rows, |(_, one)| one.is_exact)?;
    group.close()?;
    file.close()?;
    Ok(())
}

/// Writes the next column of the schema.
fn column<T: DataType, W: Write + Send>(
    group: &mut Groups<'_, W>,
    rows: &[Row],
    value: impl Fn(&Row) -> T::T,
) -> Result<()> {
    let values: Vec<T::T> = rows.iter().map(value).collect();
    let mut writer = group.next_column()?.expect("as many as the schema has");
    writer.typed::<T>().write_batch(&values, None, None)?;
    writer.close()
}
