//! A line of assembly, and its operands as C.
//!
//! The disassembler names registers and writes numbers. A function of C wants places in the arrays
//! of registers, which the prelude's macros name.
//!
//! ```text
//!  v_add_u32_e32 v1, s[2:3], v4 offset:16
//!  └ name ─────┘ └ operands ──┘ └ modifier
//!                v1 ▶ V32(#1#)   s2 ▶ S[#2#]   s[2:3] ▶ S64(#2#)   vcc ▶ S64(#106#)
//!                -3 ▶ (u32)#-3#  1.0 ▶ (u32)#1065353216#
//! ```
//!
//! A number between two `#` is no part of the function: it is given to it.
//!
//! Source: AMD Instinct MI200 and MI300 ISA, and RDNA3 ISA, chapter "Scalar ALU Operations". They
//! number the registers alike, but NULL, which only RDNA has.

use crate::target::Target;

/// What RDNA's NULL gets: a register that nobody reads.
const NOWHERE: u32 = 260;

/// The C that something becomes, or why it is unknown.
pub type Result<T = String> = std::result::Result<T, String>;

/// A line of assembly, in its parts.
pub struct Assembly<'a> {
    pub target: Target,
    pub text: &'a str,
    pub name: &'a str,
    pub operands: Vec<&'a str>,
    modifiers: Vec<(&'a str, &'a str)>,
}

impl<'a> Assembly<'a> {
    pub fn parse(target: Target, text: &'a str) -> Self {
        let text = text.trim();
        let (name, rest) = text.split_once(' ').unwrap_or((text, ""));
        let (mut operands, mut modifiers) = (Vec::new(), Vec::new());
        for part in rest.split(", ") {
            let words = part.split_whitespace();
            let (named, others): (Vec<_>, Vec<_>) =
                words.partition(|word| modifier(word).is_some());
            modifiers.extend(named.into_iter().filter_map(modifier));
            // Behind an operand are flags, such as `glc`, which say how caches are used.
            operands.extend(others.first());
        }
        Self {
            target,
            text,
            name,
            operands,
            modifiers,
        }
    }

    pub fn text_of(&self, index: usize) -> Result<&'a str> {
        let operand = self.operands.get(index).copied();
        operand.ok_or_else(|| format!("{} without operand {index}", self.name))
    }

    pub fn modifier(&self, name: &str) -> Option<&'a str> {
        let mut modifiers = self.modifiers.iter();
        modifiers.find(|pair| pair.0 == name).map(|pair| pair.1)
    }

    /// Returns a modifier that is a number, such as what is added to an address.
    pub fn number_of(&self, modifier: &str) -> Result {
        number(self.modifier(modifier).unwrap_or("0"))
    }

    pub fn unknown<T>(&self) -> Result<T> {
        Err(format!("no translation of {}", self.name))
    }

    /// Returns the number of the vector register that an operand names, the first if it is several.
    pub fn vector(&self, index: usize) -> Result {
        let text = self.text_of(index)?;
        let register = register(text, "v").map(marked);
        register.ok_or_else(|| format!("vector register {text}"))
    }

    pub fn scalar_number(&self, text: &str) -> Option<u32> {
        match text {
            "vcc" | "vcc_lo" => Some(106),
            "vcc_hi" => Some(107),
            "exec" | "exec_lo" => Some(126),
            "exec_hi" => Some(127),
            "flat_scratch" | "flat_scratch_lo" => Some(102),
            "flat_scratch_hi" => Some(103),
            _ => register(text, "s"),
        }
    }

    /// Returns the number of the scalar register that an operand sets, the first if it is several.
    fn target_of(&self, index: usize) -> Result {
        let text = self.text_of(index)?;
        let register = match text {
            "null" => Some(NOWHERE),
            _ => self.scalar_number(text),
        };
        let register = register.map(marked);
        register.ok_or_else(|| format!("scalar register {text}"))
    }

    /// Returns the value of an operand, of 32 or 64 bits.
    pub fn read(&self, index: usize, bits: u32) -> Result {
        let text = self.text_of(index)?;
        if let Some(vector) = register(text, "v") {
            return Ok(format!("V{bits}({})", marked(vector)));
        }
        match (text, self.scalar_number(text)) {
            ("null", _) => Ok("0u".to_owned()),
            ("src_scc" | "scc", _) => Ok("SCC".to_owned()),
            (_, Some(scalar)) if bits == 32 => Ok(format!("S[{}]", marked(scalar))),
            (_, Some(scalar)) => Ok(format!("S64({})", marked(scalar))),
            (_, None) => Ok(format!("(u{bits}){}", number(text)?)),
        }
    }

    /// Returns the statement that sets a scalar operand, of 32 or 64 bits.
    pub fn write(&self, index: usize, value: &str, bits: u32) -> Result {
        let register = self.target_of(index)?;
        Ok(match bits {
            32 => format!("S[{register}] = (u32)({value});"),
            _ => format!("SET64({register}, {value});"),
        })
    }

    /// Returns the value of an operand that has a bit for each lane, none if there is no operand.
    pub fn mask(&self, index: usize) -> Result {
        let Ok(text) = self.text_of(index) else {
            return Ok("0".to_owned());
        };
        match self.scalar_number(text) {
            Some(scalar) => Ok(format!("MASK({})", marked(scalar))),
            None => number(text),
        }
    }

    /// Returns the statement that sets a mask.
    pub fn set_mask(&self, index: usize, value: &str) -> Result {
        Ok(format!("SETMASK({}, {value});", self.target_of(index)?))
    }
}

/// Returns a number that the function is given.
fn marked(number: impl std::fmt::Display) -> String {
    format!("#{number}#")
}

/// Returns the number of that text; of a float, its bits.
pub fn number(text: &str) -> Result {
    let number = match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).ok().map(u64::cast_signed),
        // By way of 64 bits, as the assembler rounds it.
        None if text.contains('.') => {
            let float = text.parse::<f64>().ok();
            float.map(|float| (float as f32).to_bits().into())
        }
        None => text.parse().ok(),
    };
    let number = number.map(marked);
    number.ok_or_else(|| format!("operand {text}"))
}

/// Splits `offset:16`.
fn modifier(word: &str) -> Option<(&str, &str)> {
    let (name, value) = word.split_once(':')?;
    let is_name = name.bytes().all(|c| c.is_ascii_alphanumeric() || c == b'_');
    (is_name && !name.is_empty()).then_some((name, value))
}

/// Returns 5 for `v5` and for `v[5:6]`, if `prefix` is `v`.
fn register(text: &str, prefix: &str) -> Option<u32> {
    let rest = text.strip_prefix(prefix)?;
    let range = rest.strip_prefix('[').and_then(|rest| rest.split_once(':'));
    range.map_or(rest, |(first, _)| first).parse().ok()
}
