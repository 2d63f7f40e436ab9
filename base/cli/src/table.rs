//! Tables of texts for people.

/// A row of cells. What a terminal would obey is written as its code.
pub fn row<const N: usize>(cells: [&str; N]) -> Vec<String> {
    cells.iter().map(|cell| text::printable(cell).into_owned()).collect()
}

/// Lines with aligned columns. The last one is not padded.
///
/// ```
/// use commands::table::{row, table};
/// assert_eq!(table(&[row(["NAME", "STATE"]), row(["a", "up"])]), "NAME  STATE\na     up\n");
/// ```
pub fn table(rows: &[Vec<String>]) -> String {
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..rows.first().map_or(0, Vec::len)).map(width).collect();
    let mut text = String::new();
    for row in rows {
        let cells = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}"));
        let line: Vec<String> = cells.collect();
        text.push_str(line.join("  ").trim_end());
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned() {
        let rows = [row(["A", "LONGER", "C"]), row(["aé", "b", ""]), row(["\u{1b}[1m", "b", "c"])];
        let text = table(&rows);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[1], format!("{:<w$}  b", "aé", w = lines[0].find("LONGER").unwrap() - 2));
        assert!(!text.contains('\u{1b}'), "{text:?}");
    }
}
