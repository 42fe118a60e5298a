//! Rows as people read them: a table of text, or of HTML in a notebook.
//!
//! ```text
//!  first rows ─▶ +---+---+ │ <table>…</table>      names and values are escaped: they are data
//! ```

use std::fmt::Write;

use arrow::array::RecordBatch;
use arrow::datatypes::{Schema, SchemaRef};
use arrow::error::ArrowError;
use arrow::util::display::{ArrayFormatter, FormatOptions};
use arrow::util::pretty::pretty_format_batches_with_schema;

/// Characters of a cell in HTML at most.
const MOST_CHARACTERS: usize = 200;

/// Returns the first `rows` of `batches`, and whether there are more.
pub fn first(batches: Vec<RecordBatch>, rows: usize) -> (Vec<RecordBatch>, bool) {
    let mut left = rows;
    let mut has_more = false;
    let cut = |batch: RecordBatch| {
        has_more |= batch.num_rows() > left;
        let batch = batch.slice(0, batch.num_rows().min(left));
        left -= batch.num_rows();
        batch
    };
    let first = batches.into_iter().map(cut).collect();
    (first, has_more)
}

/// Returns a table of text.
pub fn plain(schema: SchemaRef, batches: &[RecordBatch]) -> Result<String, ArrowError> {
    Ok(pretty_format_batches_with_schema(schema, batches)?.to_string())
}

/// Returns a table of HTML, with `note` below.
pub fn html(schema: &Schema, batches: &[RecordBatch], note: &str) -> Result<String, ArrowError> {
    let mut html = "<table>\n<thead><tr>".to_owned();
    for field in schema.fields() {
        let (name, kind) = (escaped(field.name()), field.data_type().to_string());
        let _ = write!(html, "<th title=\"{}\">{name}</th>", escaped(&kind));
    }
    html.push_str("</tr></thead>\n<tbody>\n");
    let options = FormatOptions::default().with_null("NULL");
    for batch in batches {
        let columns = batch.columns().iter();
        let columns = columns.map(|column| ArrayFormatter::try_new(column.as_ref(), &options));
        let columns = columns.collect::<Result<Vec<_>, _>>()?;
        for row in 0..batch.num_rows() {
            html.push_str("<tr>");
            for column in &columns {
                let cell = column.value(row).try_to_string()?;
                let _ = write!(html, "<td>{}</td>", escaped(&shortened(cell)));
            }
            html.push_str("</tr>\n");
        }
    }
    let _ = write!(html, "</tbody>\n</table>\n<p>{}</p>", escaped(note));
    Ok(html)
}

fn shortened(cell: String) -> String {
    match cell.char_indices().nth(MOST_CHARACTERS) {
        Some((end, _)) => format!("{}…", &cell[..end]),
        None => cell,
    }
}

fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            other => escaped.push(other),
        }
    }
    escaped
}
