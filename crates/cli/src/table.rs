//! Tables without borders, which other tools can split.

use std::io::{self, IsTerminal};

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

/// Lines cut to the width of the terminal. If the output is no terminal, they stay
/// whole for other tools.
pub(crate) fn fit_lines(text: &str) -> String {
    match crossterm::terminal::size() {
        Ok((width, _)) if io::stdout().is_terminal() => cut_lines(text, usize::from(width)),
        _ => text.to_owned(),
    }
}

fn cut_lines(text: &str, width: usize) -> String {
    let cut = |line: &str| {
        if line.chars().count() <= width {
            return line.to_owned();
        }
        let head: String = line.chars().take(width.saturating_sub(1)).collect();
        format!("{}…", head.trim_end())
    };
    text.lines().map(cut).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_lines_are_cut_to_the_width() {
        assert_eq!(cut_lines("short\na longer line", 8), "short\na longe…");
        assert_eq!(cut_lines("Grüße an alle", 6), "Grüße…");
        let whole = "x".repeat(500);
        assert_eq!(fit_lines(&whole), whole, "the output of a test is no terminal");
    }

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
