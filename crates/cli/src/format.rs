//! Formatting of numbers, tables and paragraphs for people.

/// A number of bytes with one decimal and a binary unit: "357.7 MiB".
pub(crate) fn bytes(count: u64) -> String {
    const UNITS: [&str; 5] = ["KiB", "MiB", "GiB", "TiB", "PiB"];
    if count < 1024 {
        return format!("{count} bytes");
    }
    let mut value = count as f64 / 1024.0;
    let mut unit = 0;
    // From 1023.95 on, `{:.1}` would print 1024.0.
    while value >= 1023.95 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    format!("{value:.1} {}", UNITS[unit])
}

/// A number with thousands separators: "93,735,472".
pub(crate) fn thousands(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A count with its noun: "1 tensor", "2 tensors".
pub(crate) fn counted(number: usize, noun: &str) -> String {
    let plural = if number == 1 { "" } else { "s" };
    format!("{} {noun}{plural}", thousands(number as u64))
}

/// Wraps a text at spaces into lines of at most `width` characters; a longer word gets its own line.
pub(crate) fn wrapped(text: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        let line = lines.last_mut().expect("there is a first line");
        if line.is_empty() {
            line.push_str(word);
        } else if line.chars().count() + 1 + word.chars().count() <= width {
            line.push(' ');
            line.push_str(word);
        } else {
            lines.push(word.to_owned());
        }
    }
    lines
}

/// Most characters of a table's cell.
const MAX_CELL: usize = 400;

/// The first `most` characters of a text, with "…" if there are more.
pub(crate) fn shortened(text: &str, most: usize) -> String {
    match text.char_indices().nth(most) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

/// A table: columns as wide as their widest cell, separated by two spaces; trailing spaces are removed.
/// Cells are single lines: what else is in a name is written out.
pub(crate) fn table(rows: &[Vec<String>]) -> String {
    let cell = |cell: &String| shortened(&cell.replace('\n', "\\n").replace('\t', "\\t"), MAX_CELL);
    let rows: Vec<Vec<String>> = rows.iter().map(|row| row.iter().map(cell).collect()).collect();
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column));
        cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let line = |row: &Vec<String>| {
        let cells = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}"));
        cells.collect::<Vec<String>>().join("  ").trim_end().to_owned()
    };
    rows.iter().map(line).collect::<Vec<String>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_have_units() {
        for (count, text) in [
            (0, "0 bytes"),
            (1023, "1023 bytes"),
            (1024, "1.0 KiB"),
            (375_061_131, "357.7 MiB"),
            ((1 << 20) - 1, "1.0 MiB"),
            (u64::MAX, "16384.0 PiB"),
        ] {
            assert_eq!(bytes(count), text);
        }
    }

    #[test]
    fn thousands_have_separators() {
        for (number, text) in [(0, "0"), (999, "999"), (1000, "1,000"), (93_735_472, "93,735,472")]
        {
            assert_eq!(thousands(number), text);
        }
        assert_eq!(counted(1, "tensor"), "1 tensor");
        assert_eq!(counted(1024, "tensor"), "1,024 tensors");
    }

    #[test]
    fn long_lines_are_wrapped_at_spaces() {
        assert_eq!(wrapped("one two three", 7), ["one two", "three"]);
        assert_eq!(wrapped("incomprehensible it is", 5), ["incomprehensible", "it is"]);
        assert_eq!(wrapped("", 5), [""]);
    }

    #[test]
    fn columns_are_aligned() {
        let rows = [["a", "bb", "c"], ["ddd", "é", ""]];
        let rows: Vec<Vec<String>> = rows.map(|row| row.map(str::to_owned).to_vec()).to_vec();
        assert_eq!(table(&rows), "a    bb  c\nddd  é");
        let long = vec![vec!["é".repeat(70_000)]];
        assert_eq!(table(&long).chars().count(), MAX_CELL + 1);
    }
}
