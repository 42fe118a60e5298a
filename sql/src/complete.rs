//! The words that the Tab key offers at the prompt.
//!
//! ```text
//!  SELECT na│          words of SQL, functions, tables, columns
//!  SET horton.│        options
//!  FROM 'data/tr│      files
//!  \pse│               commands
//! ```
//!
//! Everything else is `datafusion-cli`'s: highlighting, hints, and whether a statement is complete.

use std::borrow::Cow;
use std::collections::BTreeSet;

use datafusion::config::Dialect;
use datafusion::prelude::SessionContext;
use datafusion_cli::helper::CliHelper;
use rustyline::completion::{Completer, FilenameCompleter, Pair};
use rustyline::highlight::{CmdKind, Highlighter};
use rustyline::hint::Hinter;
use rustyline::validate::{ValidationContext, ValidationResult, Validator};
use rustyline::{Context, Helper, Result};

/// Words of DataFusion's statements.
const WORDS: &str = "ALL ALTER ANALYZE AND ANTI AS ASC BETWEEN BIGINT BOOLEAN BY CASE CAST COLUMNS \
    COPY CREATE CROSS CURRENT DATE DELETE DESC DESCRIBE DISTINCT DOUBLE DROP ELSE END EXCEPT \
    EXECUTE EXISTS EXPLAIN EXTERNAL EXTRACT FALSE FILTER FIRST FLOAT FOLLOWING FROM FULL FUNCTIONS \
    GROUP HAVING ILIKE IN INNER INSERT INT INTERSECT INTERVAL INTO IS JOIN LAST LATERAL LEFT LIKE \
    LIMIT LOCATION NATURAL NOT NULL NULLS OFFSET ON OPTIONS OR ORDER OUTER OVER PARTITION \
    PARTITIONED PRECEDING PREPARE QUALIFY RANGE RECURSIVE REPLACE RESET RIGHT ROLLUP ROWS SCHEMA \
    SELECT SEMI SET SHOW SMALLINT STORED TABLE TABLES THEN TIMESTAMP TRUE UNBOUNDED UNION UPDATE \
    USING VALUES VARCHAR VERBOSE VIEW WHEN WHERE WINDOW WITH";

/// Commands of the prompt.
const COMMANDS: [&str; 7] = ["\\?", "\\d", "\\h", "\\i", "\\pset", "\\q", "\\quiet"];

/// The prompt's helper.
pub struct Assistant {
    inner: CliHelper,
    files: FilenameCompleter,
    /// Functions, options, tables and columns.
    names: BTreeSet<String>,
    columns: BTreeSet<String>,
}

impl Assistant {
    /// Returns the helper, which knows no names yet.
    pub fn new(dialect: &Dialect, color: bool) -> Self {
        Self {
            inner: CliHelper::new(dialect, color),
            files: FilenameCompleter::new(),
            names: BTreeSet::new(),
            columns: BTreeSet::new(),
        }
    }

    /// Learns the names that `context` has now.
    pub async fn learn(&mut self, context: &SessionContext) {
        let state = context.state();
        self.inner
            .set_dialect(&state.config_options().sql_parser.dialect);
        let mut names = BTreeSet::new();
        names.extend(state.scalar_functions().keys().cloned());
        names.extend(state.aggregate_functions().keys().cloned());
        names.extend(state.window_functions().keys().cloned());
        let options = state.config_options().entries().into_iter();
        names.extend(options.map(|option| option.key));
        let mut columns = BTreeSet::new();
        let catalogs = state.catalog_list();
        for catalog in catalogs.catalog_names() {
            let Some(catalog) = catalogs.catalog(&catalog) else {
                continue;
            };
            for schema in catalog.schema_names() {
                let Some(provider) = catalog.schema(&schema) else {
                    continue;
                };
                for table in provider.table_names() {
                    if let Ok(Some(found)) = provider.table(&table).await {
                        let schema = found.schema();
                        columns.extend(schema.fields().iter().map(|field| field.name().clone()));
                    }
                    names.insert(table);
                }
            }
        }
        names.extend(columns.iter().cloned());
        self.names = names;
        self.columns = columns;
    }

    /// Forgets that the hint was shown.
    pub fn reset_hint(&self) {
        self.inner.reset_hint();
    }
}

/// Returns the words of SQL that begin with `word`. They are in lower case if it is.
fn words(word: &str) -> impl Iterator<Item = String> {
    let is_lower = word.chars().any(char::is_lowercase);
    let words = WORDS.split_whitespace().filter(|name| begins(name, word));
    words.map(move |name| {
        if is_lower {
            name.to_lowercase()
        } else {
            name.to_owned()
        }
    })
}

fn begins(name: &str, word: &str) -> bool {
    let start = name.get(..word.len());
    start.is_some_and(|start| start.eq_ignore_ascii_case(word))
}

/// Returns those of `names` that begin with `word`.
fn those_of<'a>(names: &'a BTreeSet<String>, word: &'a str) -> impl Iterator<Item = String> {
    names.iter().filter(|name| begins(name, word)).cloned()
}

fn pair(text: String) -> Pair {
    Pair {
        display: text.clone(),
        replacement: text,
    }
}

impl Completer for Assistant {
    type Candidate = Pair;

    fn complete(
        &self,
        line: &str,
        pos: usize,
        context: &Context<'_>,
    ) -> Result<(usize, Vec<Pair>)> {
        let before = &line[..pos];
        if before.matches('\'').count() % 2 == 1 {
            return self.files.complete(line, pos, context);
        }
        let is_of_word = |c: char| c.is_alphanumeric() || c == '_' || c == '.' || c == '\\';
        let start = before
            .char_indices()
            .rev()
            .take_while(|(_, c)| is_of_word(*c))
            .last()
            .map_or(pos, |(at, _)| at);
        let word = &before[start..];
        if word.starts_with('\\') && start == 0 {
            let commands = COMMANDS.iter().filter(|command| command.starts_with(word));
            let commands = commands.map(|command| pair((*command).to_owned()));
            return Ok((start, commands.collect()));
        }
        if word.is_empty() {
            return Ok((pos, Vec::new()));
        }
        let found: BTreeSet<String> = words(word).chain(those_of(&self.names, word)).collect();
        // After a table's name and a point: a column.
        if let (true, Some((_, column))) = (found.is_empty(), word.rsplit_once('.')) {
            let columns = those_of(&self.columns, column).map(pair);
            return Ok((pos - column.len(), columns.collect()));
        }
        Ok((start, found.into_iter().map(pair).collect()))
    }
}

impl Highlighter for Assistant {
    fn highlight<'l>(&self, line: &'l str, pos: usize) -> Cow<'l, str> {
        self.inner.highlight(line, pos)
    }

    fn highlight_char(&self, line: &str, pos: usize, kind: CmdKind) -> bool {
        self.inner.highlight_char(line, pos, kind)
    }

    fn highlight_hint<'h>(&self, hint: &'h str) -> Cow<'h, str> {
        self.inner.highlight_hint(hint)
    }
}

impl Hinter for Assistant {
    type Hint = String;

    fn hint(&self, line: &str, pos: usize, context: &Context<'_>) -> Option<String> {
        self.inner.hint(line, pos, context)
    }
}

impl Validator for Assistant {
    fn validate(&self, context: &mut ValidationContext<'_>) -> Result<ValidationResult> {
        self.inner.validate(context)
    }
}

impl Helper for Assistant {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_as_they_were_begun_and_names_as_they_are() {
        assert_eq!(words("SEL").collect::<Vec<_>>(), ["SELECT"]);
        assert_eq!(words("sel").collect::<Vec<_>>(), ["select"]);
        let names = ["city", "City_id", "country"].map(str::to_owned).into();
        let found: Vec<String> = those_of(&names, "ci").collect();
        assert_eq!(found, ["City_id", "city"]);
        assert_eq!(those_of(&names, "é").count(), 0);
    }
}
