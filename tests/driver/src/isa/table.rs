//! The table of instructions, and its templates of C.
//!
//! Most instructions differ from the next one by an operator only. `instructions.txt` has them, in
//! sections with a template each, and explains the codes of the templates.
//!
//! ```text
//!  [scalar] const u$n a = $r1, b = $r2, v = @1; $w0(v) SCC = v != 0;
//!  or_b*    a | b
//!  └ of 32 or 64 bits, $n     s_or_b64 s[0:1], s[2:3], vcc
//!                              ▼
//!           const u64 a = S64(2), b = S64(106), v = a | b; SET64(0, v); SCC = v != 0;
//! ```
//!
//! Source: AMD Instinct MI200 and MI300 ISA, and RDNA3 ISA, chapter "Instructions".

use super::memory::{address, step, term};
use super::operand::{Assembly, Result, Unknown, set_scalar};
use super::vector::{half_of_pair, set, set_lower_half, sources};

const TABLE: &str = include_str!("instructions.txt");

/// What the table has for an operation.
struct Entry<'a> {
    template: String,
    columns: [&'static str; 3],
    /// `i`, `u` or `b`, and the bits, if the name has them.
    sign: &'a str,
    bits: u32,
}

/// Returns the C of `operation` for `assembly`, by a section of that name.
pub fn find(section: &str, operation: &str, assembly: &Assembly) -> Result {
    find_with(section, operation, assembly, &[])
}

/// As `find`, with texts to replace others in the template.
pub fn find_with(
    section: &str,
    operation: &str,
    assembly: &Assembly,
    replaced: &[(&str, &str)],
) -> Result {
    let Some(entry) = entry(section, operation) else {
        return assembly.unknown();
    };
    let [first, second, third] = entry.columns;
    let template = entry.template.replace("@1", first);
    let template = replaced
        .iter()
        .fold(template, |text, (from, to)| text.replace(from, to));
    let template = template.replace("@2", second).replace("@3", third);
    entry.filled(assembly, &template)
}

/// Returns the columns of an operation.
pub fn columns(section: &str, operation: &str) -> Option<[&'static str; 3]> {
    entry(section, operation).map(|entry| entry.columns)
}

fn entry<'a>(section: &str, operation: &'a str) -> Option<Entry<'a>> {
    // The template, if the lines below it belong to the section. Heads in a row share their lines.
    let (mut template, mut is_named, mut is_in_heads) = (None, false, false);
    for line in TABLE.lines().filter(|line| !line.starts_with('#')) {
        if let Some((names, head)) = line.strip_prefix('[').and_then(|line| line.split_once(']')) {
            is_named = names.split(' ').any(|name| name == section);
            let before = template.filter(|_| is_in_heads);
            template = if is_named {
                Some(head.to_owned())
            } else {
                before
            };
            is_in_heads = true;
        } else if line.starts_with(' ') {
            template = template.map(|head| if is_named { head + line } else { head });
        } else if let Some(template) = &template {
            let mut columns = line
                .split("  ")
                .map(str::trim)
                .filter(|text| !text.is_empty());
            let mut names = columns.next().unwrap_or_default().split(' ');
            is_in_heads = false;
            if let Some((sign, bits)) = names.find_map(|name| matched(name, operation)) {
                let columns = [(); 3].map(|()| columns.next().unwrap_or_default());
                let template = template.clone();
                return Some(Entry {
                    template,
                    columns,
                    sign,
                    bits,
                });
            }
        }
    }
    None
}

/// Returns sign and bits, if `operation` is one that the pattern `cmp_eq_?*` or `add_u32` names.
fn matched<'a>(pattern: &str, operation: &'a str) -> Option<(&'a str, u32)> {
    let Some(head) = pattern.strip_suffix('*') else {
        return (pattern == operation).then_some(("", 32));
    };
    let rest = operation.strip_prefix(head.trim_end_matches('?'))?;
    let (sign, bits) = rest.split_at_checked(rest.len().checked_sub(2)?)?;
    let is_sign = matches!(
        (sign, head.ends_with('?')),
        ("i" | "u" | "b", true) | ("", false)
    );
    let bits = bits.parse().ok()?;
    (is_sign && [16, 32, 64].contains(&bits)).then_some((sign, bits))
}

impl Entry<'_> {
    /// Returns the template with C for its codes.
    fn filled(&self, assembly: &Assembly, template: &str) -> Result {
        let (mut filled, mut rest) = (String::new(), template);
        while let Some((before, code)) = rest.split_once('$') {
            let (letter, after) = code.split_at_checked(1).unwrap_or((code, ""));
            let digit = after.chars().next().and_then(|digit| digit.to_digit(10));
            let index = digit.filter(|_| !"nkiloBg".contains(letter));
            let after = after.get(usize::from(index.is_some())..);
            let (further, after) = further(after.unwrap_or_default());
            let (value, after) = match letter {
                "w" | "M" | "h" | "y" | "z" | "f" | "u" | "S" => argument(after),
                _ => ("", after),
            };
            let value = self.filled(assembly, value)?;
            filled += before;
            let index = index.unwrap_or(0) as usize;
            filled += &match letter {
                "v" => (assembly.vector(index)? + further).to_string(),
                _ => self.coded(assembly, letter, index, &value)?,
            };
            rest = after;
        }
        Ok(filled + rest)
    }

    /// Returns the C of a code, such as `$w0(value)`.
    fn coded(&self, assembly: &Assembly, letter: &str, index: usize, value: &str) -> Result {
        match letter {
            "n" => Ok(self.bits.to_string()),
            "k" => Ok((self.bits - 1).to_string()),
            "B" => Ok((self.bits / 8).to_string()),
            "i" => Ok(self.sign.to_owned()),
            "r" => assembly.read(index, self.bits),
            "s" => assembly.read(index, 32),
            "d" => assembly.read(index, 64),
            "m" => assembly.mask(index),
            "a" => sources(assembly, index..assembly.count(), self.bits.max(32)),
            "b" => sources(assembly, index..index + 2, 32),
            "t" => assembly.text_of(index).map(str::to_owned),
            "x" => Ok((assembly.vector(index)? + self.bits / 32).to_string()),
            "e" => half_of_pair(assembly, index),
            "j" => term(assembly, index),
            "f" => step(assembly, index, value),
            "A" => address(assembly, index),
            "W" => Ok(assembly.target.wave_size().to_string()),
            "l" => Ok((assembly.target.wave_size() - 1).to_string()),
            "o" => Ok(assembly.offset().to_owned()),
            "w" => assembly.write(index, value, self.bits),
            "M" => assembly.set_mask(index, value),
            "y" => set(assembly, value),
            "z" => set_lower_half(assembly, value),
            "g" => assembly.value("exec", self.bits),
            "h" => Ok(set_scalar(126, value, self.bits)),
            "u" => Ok(copied("V32(", ") = r_", assembly.vector(index)?, value)),
            "S" => Ok(copied("S[", "] = v", assembly.scalar(index)?, value)),
            "R" => {
                let register = assembly.vector(index)?;
                let high = format!(" V32({}) = o >> 32;", register + 1);
                let high = if self.bits == 64 { &high } else { "" };
                Ok(format!("V32({register}) = (u32)o;{high}"))
            }
            _ => Err(Unknown(format!("code ${letter}"))),
        }
    }
}

/// Returns the statements that set as many registers, from `first` on, to elements of an array.
fn copied(register: &str, array: &str, first: u32, count: &str) -> String {
    let count = count.parse().unwrap_or(0);
    let sets = (0..count).map(|i| format!("{register}{}{array}[{i}];", first + i));
    sets.collect::<Vec<_>>().join(" ")
}

/// Splits `+1 rest` behind the digit, if a code has one.
fn further(text: &str) -> (u32, &str) {
    let mut letters = text.chars();
    match (
        letters.next(),
        letters.next().and_then(|digit| digit.to_digit(10)),
    ) {
        (Some('+'), Some(digit)) => (digit, letters.as_str()),
        _ => (0, text),
    }
}

/// Splits `(v) rest` behind the parenthesis that closes the first.
fn argument(text: &str) -> (&str, &str) {
    let mut depth = 0;
    let is_end = |letter| {
        depth += i32::from(letter == '(') - i32::from(letter == ')');
        depth == 0
    };
    let end = text.find(is_end).unwrap_or(text.len());
    let (value, rest) = text.split_at(end);
    let value = value.strip_prefix('(').unwrap_or(value);
    (value, rest.strip_prefix(')').unwrap_or(rest))
}
