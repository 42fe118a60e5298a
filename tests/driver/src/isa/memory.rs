//! Local, global and private memory as C, for all lanes at once.
//!
//! What is moved is the same for all; each kind of memory says where a lane's bytes are. CDNA reads
//! and writes local memory, RDNA loads and stores.
//!
//! ```text
//!  ds_read_b64           v[0:1], v2 offset:8       8 bytes of local memory at V32(2) + 8
//!  global_load_dword     v0, v[2:3], off offset:8  4 bytes at V64(2) + 8
//!  global_load_dword     v0, v2, s[4:5] offset:8   4 bytes at S64(4) + V32(2) + 8
//!  flat_load_dword       v0, v[2:3]                4 bytes at V64(2)
//!  scratch_load_dword    v0, v2, off               4 bytes of the lane's own at V32(2)
//! ```
//!
//! Source: AMD Instinct MI200 and MI300 ISA, and RDNA3 ISA, chapters "Data Share Operations",
//! "Vector Memory Operations" and "Flat Memory Instructions".

use super::operand::{Assembly, Result};
use super::table::{columns, find, find_with};

/// Returns the C of `operation`, the name without `ds_`.
pub fn local(assembly: &Assembly, operation: &str) -> Result {
    let operation = match operation.strip_prefix("read") {
        Some(rest) => format!("load{rest}"),
        None => operation.replacen("write", "store", 1),
    };
    if moves(&operation) {
        return moved(assembly, &operation, "lds(L, V32($v@a) + $o, @2, l)");
    }
    let (operation, returns) = match operation.split_once("_rtn") {
        Some((kind, bits)) => (format!("{kind}{bits}"), true),
        None => (operation, false),
    };
    if columns("local", &operation).is_some() {
        return find("local", &operation, assembly);
    }
    let pointer = "lds(L, V32($v@a) + $o, $B, l)";
    updated(assembly, &operation, returns, [pointer, "$r@b", "$r@c"])
}

/// Returns the C of `operation`, the name without `global_` or `flat_`.
pub fn global(assembly: &Assembly, operation: &str) -> Result {
    let Some(kind) = operation.strip_prefix("atomic_") else {
        return moved(assembly, operation, "at($A@a, @2, l)");
    };
    let kind = match kind.strip_suffix("_x2") {
        Some(kind) => format!("{kind}_b64"),
        None if kind.ends_with("32") || kind.ends_with("64") => kind.to_owned(),
        None => format!("{kind}_b32"),
    };
    // With three operands, the base not counted, it returns what was there.
    let returns = assembly.count() - usize::from(base(assembly)?.is_some()) == 3;
    let parts = ["at($A@a, $B, l)", "V$n($v@b)", "V$n($x@b)"];
    updated(assembly, &kind, returns, parts)
}

/// Private memory by `scratch_` instructions.
pub fn scratch(assembly: &Assembly, operation: &str) -> Result {
    moved(
        assembly,
        operation,
        "priv(X, S[259], l, (u32)($o$j@a$j2), @2)",
    )
}

/// Private memory on gfx90a, where the stack pointer counts the bytes of all lanes.
pub fn buffer(assembly: &Assembly, operation: &str) -> Result {
    let (direction, what) = operation.split_once('_').unwrap_or_default();
    if assembly.text_of(2)? != "s[0:3]" {
        return assembly.unknown();
    }
    let pointer = "priv(X, S[259], l, (u32)($s3 / $W + $o$j1), @2)";
    find_with(direction, what, assembly, &[("@p", pointer), ("@d", "0")])
}

/// Returns whether `operation` is a load or a store, such as `load_ubyte`.
fn moves(operation: &str) -> bool {
    let parts = operation.split_once('_');
    parts.is_some_and(|(direction, what)| columns(direction, what).is_some())
}

/// Returns the C of a load or a store, at a pointer in which @a stands for the operand.
fn moved(assembly: &Assembly, operation: &str, pointer: &str) -> Result {
    let (direction, what) = operation.split_once('_').unwrap_or_default();
    let (data, address) = match direction {
        "load" => ("0", "1"),
        _ => ("1", "0"),
    };
    let replaced = [("@p", pointer), ("@d", data), ("@a", address)];
    find_with(direction, what, assembly, &replaced)
}

/// Returns the C of an atomic instruction: a pointer, the value, and what is compared. In them @a
/// stands for the operand with the address, @b and @c for those behind it.
fn updated(assembly: &Assembly, operation: &str, returns: bool, parts: [&str; 3]) -> Result {
    let [pointer, value, compared] = parts;
    let first = usize::from(returns);
    let [a, b, c] = [first, first + 1, first + 2].map(|operand| operand.to_string());
    let returned = if returns { "$R0" } else { "" };
    let parts = [
        ("@p", pointer),
        ("@v", value),
        ("@k", compared),
        ("@r", returned),
    ];
    let operands = [("@a", a.as_str()), ("@b", &b), ("@c", &c)];
    find_with(
        "atomic",
        operation,
        assembly,
        &[&parts[..], &operands].concat(),
    )
}

/// Returns the last operand, the base, which `flat_` instructions have not.
fn base<'a>(assembly: &Assembly<'a>) -> Result<Option<&'a str>> {
    let last = assembly.text_of(assembly.count().saturating_sub(1))?;
    Ok((last == "off" || assembly.scalar_number(last).is_some()).then_some(last))
}

/// Returns the global address that an operand gives with the base.
pub fn address(assembly: &Assembly, operand: usize) -> Result {
    let (register, offset) = (assembly.vector(operand)?, assembly.offset());
    let address = match base(assembly)? {
        None | Some("off") => format!("V64({register})"),
        Some(base) => format!("{} + V32({register})", assembly.value(base, 64)?),
    };
    Ok(format!("({address} + (i64){offset})"))
}

/// Returns what an operand adds to a private address.
pub fn term(assembly: &Assembly, operand: usize) -> Result {
    match assembly.text_of(operand)? {
        "off" => Ok(String::new()),
        _ => Ok(format!(" + {}", assembly.read(operand, 32)?)),
    }
}

/// Returns the first or the second offset of an instruction with two, in steps of so many bytes.
pub fn step(assembly: &Assembly, index: usize, bytes: &str) -> Result {
    let steps = assembly.modifier(["offset0", "offset1"][index.min(1)]);
    match (steps.unwrap_or("0").parse::<u32>(), bytes.parse::<u32>()) {
        (Ok(steps), Ok(bytes)) => Ok((steps * bytes).to_string()),
        _ => assembly.unknown(),
    }
}
