//! A line of assembly, and its operands as C.
//!
//! The disassembler names registers and writes numbers. A function of C wants places in the arrays
//! of registers, which the prelude's macros name.
//!
//! ```text
//!  v_add_u32_e32 v1, s[2:3], v4 offset:16
//!  └ name ─────┘ └ operands ──┘ └ modifier
//!                v1 ▶ V32(1)   s2 ▶ S[2]   s[2:3] ▶ S64(2)   -v1 ▶ (V32(1) ^ 0x80000000u)
//!                vcc ▶ S64(106)            1.0 ▶ (u32)0x3f800000u
//! ```
//!
//! Source: AMD Instinct MI200 and MI300 ISA, and RDNA3 ISA, chapter "Scalar ALU Operations". They
//! number the registers alike, but M0, and NULL, which only RDNA has.

use crate::target::Target;

/// Why an instruction is not translated.
#[derive(Debug, PartialEq, Eq)]
pub struct Unknown(pub String);

/// The C that something becomes.
pub type Result<T = String> = std::result::Result<T, Unknown>;

/// A line of assembly, in its parts.
pub struct Assembly<'a> {
    pub target: Target,
    pub text: &'a str,
    pub name: &'a str,
    operands: Vec<&'a str>,
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

    /// Returns the number of operands.
    pub fn count(&self) -> usize {
        self.operands.len()
    }

    pub fn text_of(&self, index: usize) -> Result<&'a str> {
        let operand = self.operands.get(index).copied();
        operand.ok_or_else(|| Unknown(format!("{} without operand {index}", self.name)))
    }

    pub fn modifier(&self, name: &str) -> Option<&'a str> {
        let mut modifiers = self.modifiers.iter();
        modifiers.find(|pair| pair.0 == name).map(|pair| pair.1)
    }

    /// Returns what is added to an address.
    pub fn offset(&self) -> &'a str {
        self.modifier("offset").unwrap_or("0")
    }

    /// Returns whether it takes parts of registers, by sub-dword addressing.
    pub fn is_sub_dword(&self) -> bool {
        self.name.ends_with("_sdwa")
    }

    pub fn unknown<T>(&self) -> Result<T> {
        Err(Unknown(format!("no translation of {}", self.name)))
    }

    /// Returns the number of the vector register that an operand names, the first if it is several.
    pub fn vector(&self, index: usize) -> Result<u32> {
        let text = self.text_of(index)?;
        register(text, "v").ok_or_else(|| Unknown(format!("vector register {text}")))
    }

    /// Returns the number of a scalar register, the first if it is several.
    pub fn scalar(&self, index: usize) -> Result<u32> {
        let text = self.text_of(index)?;
        let number = self.scalar_number(text);
        number.ok_or_else(|| Unknown(format!("scalar register {text}")))
    }

    pub fn scalar_number(&self, text: &str) -> Option<u32> {
        let is_rdna = self.target.is_rdna();
        match text {
            "vcc" | "vcc_lo" => Some(106),
            "vcc_hi" => Some(107),
            "exec" | "exec_lo" => Some(126),
            "exec_hi" => Some(127),
            "m0" if is_rdna => Some(125),
            "m0" => Some(124),
            "null" => is_rdna.then_some(124),
            "flat_scratch" | "flat_scratch_lo" => Some(102),
            "flat_scratch_hi" => Some(103),
            _ => register(text, "s").or_else(|| Some(108 + register(text, "ttmp")?)),
        }
    }

    /// Returns the value of an operand, of 32 or 64 bits.
    pub fn read(&self, index: usize, bits: u32) -> Result {
        self.value(self.text_of(index)?, bits)
    }

    pub fn value(&self, text: &str, bits: u32) -> Result {
        let negated = text.strip_prefix('-').filter(|rest| !is_number(rest));
        if let Some(rest) = negated {
            return Ok(format!("({} ^ 0x80000000u)", self.value(rest, bits)?));
        }
        if text.starts_with('|') {
            let value = self.value(text.trim_matches('|'), bits)?;
            return Ok(format!("({value} & 0x7fffffffu)"));
        }
        if let Some(vector) = register(text, "v") {
            return Ok(format!("V{bits}({vector})"));
        }
        match (text, self.scalar_number(text)) {
            ("null", _) => Ok("0u".to_owned()),
            ("src_scc" | "scc", _) => Ok("SCC".to_owned()),
            (_, Some(scalar)) if bits == 32 => Ok(format!("S[{scalar}]")),
            (_, Some(scalar)) => Ok(format!("S64({scalar})")),
            (_, None) => constant(text, bits),
        }
    }

    /// Returns the statement that sets a scalar operand. Nothing remains of what RDNA's NULL gets.
    pub fn write(&self, index: usize, value: &str, bits: u32) -> Result {
        match self.scalar_number(self.text_of(index)?) {
            Some(124) if self.target.is_rdna() => Ok(format!("(void)({value});")),
            _ => Ok(set_scalar(self.scalar(index)?, value, bits)),
        }
    }

    /// Returns the value of an operand that has a bit for each lane.
    pub fn mask(&self, index: usize) -> Result {
        let text = self.text_of(index)?;
        match self.scalar_number(text) {
            Some(scalar) => Ok(format!("MASK({scalar})")),
            None => constant(text, 64),
        }
    }

    /// Returns the statement that sets a mask.
    pub fn set_mask(&self, index: usize, value: &str) -> Result {
        match self.text_of(index)? {
            "null" => Ok(String::new()),
            _ => Ok(format!("SETMASK({}, {value});", self.scalar(index)?)),
        }
    }
}

/// Returns the statement that sets a scalar register, or two of them.
pub fn set_scalar(number: u32, value: &str, bits: u32) -> String {
    match bits {
        32 => format!("S[{number}] = (u32)({value});"),
        _ => format!("SET64({number}, {value});"),
    }
}

/// Splits `offset:16`.
fn modifier(word: &str) -> Option<(&str, &str)> {
    let (name, value) = word.split_once(':')?;
    let is_name = name.bytes().all(|c| c.is_ascii_alphanumeric() || c == b'_');
    (is_name && !name.is_empty()).then_some((name, value))
}

fn is_digits(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|c| c.is_ascii_digit())
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|c| c.is_ascii_digit() || c == b'.')
}

/// Returns 5 for `v5` and for `v[5:6]`, if `prefix` is `v`.
fn register(text: &str, prefix: &str) -> Option<u32> {
    let rest = text.strip_prefix(prefix)?;
    let range = rest
        .strip_prefix('[')
        .and_then(|rest| rest.strip_suffix(']'));
    let first = range.map(|range| range.split_once(':').unwrap_or((range, "0")));
    let (first, last) = first.unwrap_or((rest, "0"));
    let is_register = is_digits(first) && is_digits(last);
    first.parse().ok().filter(|_| is_register)
}

/// Returns a number as C, the bits of a float.
fn constant(text: &str, bits: u32) -> Result {
    let unknown = || Unknown(format!("operand {text}"));
    let positive = text.strip_prefix('-').unwrap_or(text);
    if is_digits(positive) {
        let number: i64 = text.parse().map_err(|_| unknown())?;
        Ok(format!("(u{bits}){number}ll"))
    } else if let Some(digits) = text.strip_prefix("0x")
        && u64::from_str_radix(digits, 16).is_ok()
    {
        Ok(format!("(u{bits}){text}ull"))
    } else if let Some((whole, fraction)) = positive.split_once('.')
        && is_digits(whole)
        && is_digits(fraction)
    {
        // By way of 64 bits, as the assembler rounds it.
        let number: f64 = text.parse().map_err(|_| unknown())?;
        Ok(format!("(u{bits}){:#x}u", (number as f32).to_bits()))
    } else {
        Err(unknown())
    }
}
