//! Tables without lines: easy to read, and to cut with other tools.

use comfy_table::{CellAlignment, ContentArrangement, Table, presets};

/// A table with a header; `numbers` are the columns that are aligned right.
pub(crate) fn table(header: &[&str], numbers: &[usize], rows: Vec<Vec<String>>) -> String {
    let mut table = Table::new();
    table
        .load_style(presets::NOTHING)
        .set_content_arrangement(ContentArrangement::Disabled)
        .set_header(header.to_vec())
        .add_rows(rows);
    for (at, column) in table.column_iter_mut().enumerate() {
        column.set_padding((0, 2));
        if numbers.contains(&at) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table.trim_fmt()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned_and_lines_have_no_trailing_spaces() {
        let rows = [["7", "a", "x"], ["12", "bb", ""]];
        let rows = rows.map(|row| row.map(str::to_owned).to_vec()).to_vec();
        assert_eq!(
            table(&["ID", "NAME", "ERROR"], &[0], rows),
            "ID  NAME  ERROR\n 7  a     x\n12  bb"
        );
    }
}
