//! Vector instructions as C: they are done in each active lane.
//!
//! EXEC says which lanes are active. Comparisons and carries have a bit for each lane as well.
//!
//! ```text
//!  v_cmp_lt_u32 vcc, v0, v1      EXEC  1 1 0 1 …   r = 0, then bit l of r for each active lane l
//!                                r     0 1 0 1 … ▶ VCC
//!  v_dual_mov v0, v1 :: v_dual_mov v1, v0          reads of both halves, then their writes
//! ```
//!
//! Source: AMD Instinct MI200 and MI300 ISA, and RDNA3 ISA, chapter "Vector ALU Operations"; for
//! parts of registers "SDWA", for two instructions in one "Dual Issue VALU".

use super::operand::{Assembly, Result, Unknown};
use super::table::{columns, find};

/// Returns the C of `operation`, the name without `v_` and without its encoding.
pub fn body(assembly: &Assembly, operation: &str) -> Result {
    if operation.starts_with("dual_") {
        return dual(assembly);
    }
    // CDNA's sets a mask as well.
    let is_unknown = operation.starts_with("cmpx_") && !assembly.target.is_rdna();
    if is_unknown {
        return assembly.unknown();
    }
    find("vector", operation, assembly)
}

/// Returns the declarations of a, b and c, the sources, of which sub-dword addressing takes parts.
pub fn sources(assembly: &Assembly, places: std::ops::Range<usize>, bits: u32) -> Result {
    let mut declarations = String::new();
    for (name, index) in ('a'..='c').zip(places) {
        let mut value = assembly.read(index, bits)?;
        let part = match name {
            'a' => assembly.modifier("src0_sel"),
            'b' => assembly.modifier("src1_sel"),
            _ => None,
        };
        if let Some(part) = part {
            value = selected(&value, part)?;
        }
        declarations += &format!("const u{bits} {name} = {value}; ");
    }
    Ok(declarations)
}

/// Returns the shift and the mask of a part of a register.
fn part(name: &str) -> Result<(u32, u32)> {
    match name {
        "WORD_0" => Ok((0, 0xffff)),
        "WORD_1" => Ok((16, 0xffff)),
        "BYTE_0" => Ok((0, 0xff)),
        "BYTE_1" => Ok((8, 0xff)),
        "BYTE_2" => Ok((16, 0xff)),
        "BYTE_3" => Ok((24, 0xff)),
        _ => Err(Unknown(format!("part {name}"))),
    }
}

fn selected(value: &str, name: &str) -> Result {
    if name == "DWORD" {
        return Ok(value.to_owned());
    }
    Ok(match part(name)? {
        (0, mask) => format!("({value} & {mask:#x})"),
        // The part at the top has nothing above it.
        (shift @ 16, 0xffff) | (shift @ 24, _) => format!("({value} >> {shift})"),
        (shift, mask) => format!("({value} >> {shift} & {mask:#x})"),
    })
}

/// Returns the statements that set the destination, or the part of it that is to be set.
pub fn set(assembly: &Assembly, value: &str) -> Result {
    let register = assembly.vector(0)?;
    let old = format!("const u32 d = V32({register}); (void)d; V32({register}) =");
    let name = assembly.modifier("dst_sel").unwrap_or("DWORD");
    if name == "DWORD" {
        return Ok(format!("{old} {value};"));
    }
    let (shift, mask) = part(name)?;
    let mask = mask << shift;
    let keep = match assembly.modifier("dst_unused") {
        None | Some("UNUSED_PAD") => "0".to_owned(),
        Some("UNUSED_PRESERVE") => format!("d & ~{mask:#x}u"),
        Some(other) => return Err(Unknown(format!("dst_unused:{other}"))),
    };
    Ok(format!(
        "{old} ({keep}) | (((u32)({value}) << {shift}) & {mask:#x}u);"
    ))
}

/// Returns the statements that set the lower half of the destination. CDNA sets the upper half to
/// 0, RDNA leaves it.
pub fn set_lower_half(assembly: &Assembly, value: &str) -> Result {
    match (assembly.modifier("op_sel"), assembly.target.is_rdna()) {
        (Some(_), _) => assembly.unknown(),
        (None, _) if assembly.is_sub_dword() => set(assembly, value),
        (None, true) => set(assembly, &format!("(d & 0xffff0000u) | {value}")),
        (None, false) => set(assembly, &format!("(0) | {value}")),
    }
}

/// Returns the shift of the half of a pair that `v_pk_mov_b32` takes from a source.
pub fn half_of_pair(assembly: &Assembly, source: usize) -> Result {
    let halves = assembly.modifier("op_sel").unwrap_or("[0,0]");
    match halves.trim_matches(['[', ']']).split(',').nth(source) {
        Some("0") => Ok("0".to_owned()),
        Some("1") => Ok("32".to_owned()),
        _ => Err(Unknown(format!("op_sel:{halves}"))),
    }
}

/// Two instructions in one. Both read before either writes.
fn dual(assembly: &Assembly) -> Result {
    let (mut reads, mut writes) = (String::new(), String::new());
    for (number, text) in assembly.text.split("::").enumerate() {
        let half = Assembly::parse(assembly.target, text);
        let operation = half.name.strip_prefix("v_dual_").unwrap_or(half.name);
        let register = half.vector(0)?;
        let value = if operation == "cndmask_b32" {
            let (no, yes) = (half.read(1, 32)?, half.read(2, 32)?);
            format!("VCC >> l & 1 ? {yes} : {no}")
        } else if let Some([value, ..]) = columns("word", operation) {
            let sources = sources(&half, 1..half.count(), 32)?;
            let old = format!("const u32 d = V32({register}); (void)d;");
            format!("({{ {old} {sources}{value}; }})")
        } else {
            return half.unknown();
        };
        reads += &format!("const u32 r{number} = {value}; ");
        writes += &format!("V32({register}) = r{number}; ");
    }
    Ok(format!("const u64 E = EXEC; LANES {{ {reads}{writes}}}"))
}
