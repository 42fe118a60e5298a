//! A script cut into its statements, each with its line.
//!
//! ```text
//!  "SELECT ';';  -- one; two ⏎ SELECT 2"  ─ tokens ─▶  1: SELECT ';'    2: SELECT 2
//! ```
//!
//! Tokens are those of the session's dialect, so semicolons in strings and comments do not count.
//! Statements run one by one, and an error names the line where its statement begins.

use datafusion::sql::sqlparser::dialect::Dialect;
use datafusion::sql::sqlparser::tokenizer::{Location, Token, Tokenizer, TokenizerError};

/// A statement of a script.
#[derive(Debug, PartialEq, Eq)]
pub struct Part<'a> {
    /// Its text, without the semicolon.
    pub text: &'a str,
    /// The line where it begins, from 1.
    pub line: u64,
}

/// Returns the statements of `script`; those without any token are left out.
///
/// # Errors
/// If the script has what is no token, such as a string without an end.
pub fn split<'a>(
    script: &'a str,
    dialect: &dyn Dialect,
) -> Result<Vec<Part<'a>>, Box<TokenizerError>> {
    // Statements are cut out of the text: nothing may be unescaped.
    let mut tokenizer = Tokenizer::new(dialect, script).with_unescape(false);
    let tokens = tokenizer.tokenize_with_location().map_err(Box::new)?;
    let lines: Vec<usize> = std::iter::once(0)
        .chain(script.match_indices('\n').map(|(at, _)| at + 1))
        .collect();
    let byte = |at: Location| {
        let start = lines.get((at.line as usize).saturating_sub(1));
        let start = start.copied().unwrap_or(script.len());
        let mut chars = script[start..].char_indices();
        let in_line = chars.nth((at.column as usize).saturating_sub(1));
        in_line.map_or(script.len(), |(offset, _)| start + offset)
    };
    let mut parts = Vec::new();
    let mut begun: Option<Location> = None;
    for token in &tokens {
        match (&token.token, begun) {
            (Token::Whitespace(_), _) => {}
            (Token::SemiColon, Some(start)) => {
                parts.push((start, byte(token.span.start)));
                begun = None;
            }
            (Token::SemiColon, None) => {}
            (_, None) => begun = Some(token.span.start),
            (_, Some(_)) => {}
        }
    }
    parts.extend(begun.map(|start| (start, script.len())));
    let parts = parts.into_iter().map(|(start, end)| Part {
        text: script[byte(start)..end].trim_end(),
        line: start.line,
    });
    Ok(parts.collect())
}

#[cfg(test)]
mod tests {
    use datafusion::sql::sqlparser::dialect::GenericDialect;

    use super::*;

    fn parts(script: &str) -> Vec<(u64, &str)> {
        let parts = split(script, &GenericDialect {}).unwrap();
        parts.iter().map(|part| (part.line, part.text)).collect()
    }

    #[test]
    fn semicolons_in_strings_names_and_comments_do_not_count() {
        let script = "SELECT ';', \"a;b\", 'it''s;' -- no; end\n/* ; */ ;;\n\n  SELECT 2 ; ";
        assert_eq!(
            parts(script),
            [
                (1, "SELECT ';', \"a;b\", 'it''s;' -- no; end\n/* ; */"),
                (4, "SELECT 2")
            ]
        );
    }

    #[test]
    fn the_last_statement_needs_no_semicolon() {
        assert_eq!(
            parts("SELECT 'é😀';\r\nSELECT\n 2\n"),
            [(1, "SELECT 'é😀'"), (2, "SELECT\n 2")]
        );
    }

    #[test]
    fn a_script_without_statements_has_none() {
        assert_eq!(parts(" \n-- nothing\n;;"), []);
    }

    #[test]
    fn a_string_without_an_end_is_an_error_with_its_place() {
        let error = split("SELECT 1;\nSELECT 'x", &GenericDialect {}).unwrap_err();
        assert_eq!(error.location.line, 2);
    }
}
