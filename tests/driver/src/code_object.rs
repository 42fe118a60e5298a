//! Code objects: the ELF files that AMD's compilers make of a program.
//!
//! ```text
//!   file ─┬─ LOAD segments ───────▶ memory, each at its address from the start
//!         ├─ symbols NAME.kd ─────▶ kernel descriptors there: local memory, registers, entry
//!         └─ a note, MessagePack ─▶ metadata of each kernel: arguments, sizes, registers, spills
//! ```
//!
//! Source: LLVM's "User Guide for AMDGPU Backend", its sections on code objects and kernel
//! descriptors. A crate that reads ELF would leave the checks of offsets to us all the same. The
//! code does not depend on its place, so relocations are an error and are not applied.

mod message_pack;

use std::collections::HashMap;
use std::ptr::{NonNull, null_mut};

use message_pack::Value;

/// The most bytes of a code object.
const BYTES_MAX: u64 = 1 << 28;

/// Numbers of ELF, and the kind of the note with the metadata.
const EM_AMDGPU: u64 = 224;
const PT_LOAD: u64 = 1;
const PT_NOTE: u64 = 4;
const SHT_RELA: u64 = 4;
const SHT_REL: u64 = 9;
const SHT_DYNSYM: u64 = 11;
const NT_AMDGPU_METADATA: u64 = 32;

/// A loaded code object.
pub struct CodeObject {
    pub(crate) memory: Mapping,
    kernels: Vec<Kernel>,
}

/// A kernel, by its metadata and its descriptor.
#[derive(Debug, Clone)]
pub struct Kernel {
    pub name: String,
    pub parameters: Vec<Parameter>,
    /// Bytes of all arguments, with the hidden ones.
    pub kernarg_bytes: u32,
    /// Bytes of local memory, a work-group, and of private memory, a work-item.
    pub local_bytes: u32,
    pub private_bytes: u32,
    /// The most work-items of a work-group.
    pub local_max: u32,
    pub vgprs: u32,
    pub sgprs: u32,
    pub agprs: u32,
    pub vgpr_spills: u32,
    pub sgpr_spills: u32,
    /// Where the descriptor and the first instruction are, from the start of the code.
    pub(crate) descriptor: u64,
    pub(crate) entry: u64,
    /// What the descriptor says: COMPUTE_PGM_RSRC2, and properties with the preloaded arguments.
    pub(crate) resources: u32,
    pub(crate) properties: u32,
}

/// A parameter. Its kind is `by_value`, `global_buffer`, `hidden_block_count_x`, and so on.
#[derive(Debug, Clone)]
pub struct Parameter {
    pub offset: u32,
    pub size: u32,
    pub kind: String,
}

impl CodeObject {
    /// Loads a code object from the bytes of its file.
    ///
    /// # Errors
    /// If it is none, is broken, or has relocations.
    pub fn load(bytes: &[u8]) -> Result<Self, String> {
        if !bytes.starts_with(b"\x7fELF\x02\x01") || number(bytes, 18, 2)? != EM_AMDGPU {
            return Err("not a code object of an AMD GPU".to_owned());
        }
        let (image, metadata) = read_segments(bytes)?;
        let descriptors = read_descriptors(bytes)?;
        let kernels = metadata.get("amdhsa.kernels").ok_or("no metadata")?;
        let kernels = kernels.items().iter();
        let kernels = kernels.map(|kernel| Kernel::read(kernel, &descriptors, &image));
        let kernels = kernels.collect::<Result<_, _>>()?;
        let memory = Mapping::new(image.len())?;
        memory.write(0, &image)?;
        Ok(Self { memory, kernels })
    }

    /// Returns its kernels.
    pub fn kernels(&self) -> &[Kernel] {
        &self.kernels
    }
}

impl Kernel {
    fn read(value: &Value, places: &HashMap<String, u64>, image: &[u8]) -> Result<Self, String> {
        let name = value.get(".name").and_then(Value::text);
        let name = name.ok_or("a kernel without a name")?.to_owned();
        let at = *places.get(&name).ok_or("a kernel without a descriptor")?;
        let word = |offset| number(part(image, at, 64)?, offset, 4).map(|word| word as u32);
        let parameters = value.get(".args").map_or(&[][..], Value::items).iter();
        let kernel = Self {
            name,
            parameters: parameters.map(Parameter::read).collect::<Result<_, _>>()?,
            kernarg_bytes: word(8)?.max(value.number(".kernarg_segment_size")?),
            local_bytes: word(0)?,
            private_bytes: word(4)?,
            local_max: value.number(".max_flat_workgroup_size")?,
            vgprs: value.number(".vgpr_count")?,
            sgprs: value.number(".sgpr_count")?,
            agprs: value.number(".agpr_count").unwrap_or(0),
            vgpr_spills: value.number(".vgpr_spill_count")?,
            sgpr_spills: value.number(".sgpr_spill_count")?,
            descriptor: at,
            entry: at.wrapping_add(number(image, at + 16, 8)?),
            resources: word(52)?,
            properties: word(56)?,
        };
        let end = |one: &Parameter| u64::from(one.offset) + u64::from(one.size);
        let end = kernel.parameters.iter().map(end).max();
        if end > Some(kernel.kernarg_bytes.into()) {
            return Err(format!("{} has an argument out of bounds", kernel.name));
        }
        Ok(kernel)
    }
}

impl Parameter {
    fn read(value: &Value) -> Result<Self, String> {
        let kind = value.get(".value_kind").and_then(Value::text);
        Ok(Self {
            offset: value.number(".offset")?,
            size: value.number(".size")?,
            kind: kind.ok_or("an argument without a kind")?.to_owned(),
        })
    }
}

/// Returns `size` bytes at `at`.
fn part(bytes: &[u8], at: u64, size: u64) -> Result<&[u8], String> {
    let rest = usize::try_from(at).ok().and_then(|at| bytes.get(at..));
    let part = rest.and_then(|rest| rest.get(..usize::try_from(size).ok()?));
    part.ok_or_else(|| format!("a broken code object: no {size} bytes at {at:#x}"))
}

/// Returns the number of `size` bytes, at most 8, at `at`.
fn number(bytes: &[u8], at: u64, size: u64) -> Result<u64, String> {
    let bytes = part(bytes, at, size)?.iter().rev();
    Ok(bytes.fold(0, |number, byte| number << 8 | u64::from(*byte)))
}

/// Returns the rows of a table of the file: where its place and its length are, and a row's size.
fn rows(bytes: &[u8], place: u64, length: u64, size: u64) -> Result<Vec<&[u8]>, String> {
    let table_bytes = number(bytes, length, 2)? * size;
    let table = part(bytes, number(bytes, place, 8)?, table_bytes)?;
    Ok(table.chunks_exact(size as usize).collect())
}

/// Returns the segments as they are in memory, and the metadata.
fn read_segments(bytes: &[u8]) -> Result<(Vec<u8>, Value), String> {
    let (mut image, mut metadata) = (Vec::new(), Value::Other);
    for segment in rows(bytes, 32, 56, 56)? {
        let content = part(bytes, number(segment, 8, 8)?, number(segment, 32, 8)?)?;
        match number(segment, 0, 4)? {
            PT_LOAD => {
                let (start, size) = (number(segment, 16, 8)?, number(segment, 40, 8)?);
                let size = size.max(content.len() as u64);
                let end = start.checked_add(size).filter(|end| *end <= BYTES_MAX);
                let end = end.ok_or("a code object that is too large")? as usize;
                image.resize(end.max(image.len()), 0);
                image[start as usize..][..content.len()].copy_from_slice(content);
            }
            PT_NOTE => metadata = read_notes(content)?.unwrap_or(metadata),
            _ => (),
        }
    }
    Ok((image, metadata))
}

fn read_notes(notes: &[u8]) -> Result<Option<Value>, String> {
    let mut at = 0;
    while at < notes.len() as u64 {
        let (name, size) = (number(notes, at, 4)?, number(notes, at + 4, 4)?);
        let content = at + 12 + name.next_multiple_of(4);
        if number(notes, at + 8, 4)? == NT_AMDGPU_METADATA {
            return message_pack::decode(part(notes, content, size)?).map(Some);
        }
        at = content + size.next_multiple_of(4);
    }
    Ok(None)
}

/// Returns where each kernel's descriptor is.
fn read_descriptors(bytes: &[u8]) -> Result<HashMap<String, u64>, String> {
    let sections = rows(bytes, 40, 60, 64)?;
    let content = |s| part(bytes, number(s, 24, 8)?, number(s, 32, 8)?);
    let mut places = HashMap::new();
    for section in &sections {
        let kind = number(section, 4, 4)?;
        if matches!(kind, SHT_RELA | SHT_REL) && number(section, 32, 8)? > 0 {
            return Err("a code object with relocations".to_owned());
        }
        if kind != SHT_DYNSYM {
            continue;
        }
        let strings = sections.get(number(section, 40, 4)? as usize);
        let strings = content(strings.ok_or("symbols without names")?)?;
        for symbol in content(section)?.chunks_exact(24) {
            let name = strings.get(number(symbol, 0, 4)? as usize..);
            let name = name.and_then(|name| name.split(|byte| *byte == 0).next());
            if let Some(name) = name.and_then(|name| name.strip_suffix(b".kd")) {
                let name = String::from_utf8_lossy(name).into_owned();
                places.insert(name, number(symbol, 8, 8)?);
            }
        }
    }
    Ok(places)
}

/// Zeroed memory that begins at a page, and takes space once it is touched.
pub(crate) struct Mapping {
    at: NonNull<u8>,
    bytes: usize,
}

// SAFETY: it owns the memory, which depends on no thread.
unsafe impl Send for Mapping {}
// SAFETY: loading writes to it before it is shared; then only kernels do, a launch at a time.
unsafe impl Sync for Mapping {}

impl Mapping {
    pub(crate) fn new(bytes: usize) -> Result<Self, String> {
        let access = libc::PROT_READ | libc::PROT_WRITE;
        let kind = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        // SAFETY: it maps new memory, at a place of the system's choice.
        let at = unsafe { libc::mmap(null_mut(), bytes, access, kind, -1, 0) };
        let at = (at != libc::MAP_FAILED).then(|| at.cast());
        let at = at.and_then(NonNull::new);
        let at = at.ok_or_else(|| format!("no memory of {bytes} bytes"))?;
        Ok(Self { at, bytes })
    }

    pub(crate) fn start(&self) -> *mut u8 {
        self.at.as_ptr()
    }

    /// Returns where it begins and ends.
    pub(crate) fn range(&self) -> (u64, u64) {
        let start = self.start() as u64;
        (start, start + self.bytes as u64)
    }

    /// Writes at that offset.
    pub(crate) fn write(&self, offset: usize, content: &[u8]) -> Result<(), String> {
        if offset > self.bytes || content.len() > self.bytes - offset {
            return Err(format!("no room at {offset:#x}"));
        }
        // SAFETY: it fits, as was checked. The content is memory of Rust's, not of a mapping.
        unsafe {
            self.start()
                .add(offset)
                .copy_from(content.as_ptr(), content.len())
        };
        Ok(())
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: it was mapped with this size. What has its address lives no longer than it.
        unsafe { libc::munmap(self.start().cast(), self.bytes) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_broken_elf_is_an_error() {
        let mut elf = vec![0; 128];
        elf[..6].copy_from_slice(b"\x7fELF\x02\x01");
        elf[18] = EM_AMDGPU as u8;
        let error = |bytes: &[u8]| CodeObject::load(bytes).err().unwrap();
        assert!(error(b"").contains("not a code object"));
        assert!(error(&elf).contains("no metadata"));
        assert!(error(&elf[..40]).contains("no 2 bytes at 0x38"));
        // A segment: in the file, too large in memory, and behind the end of the file.
        elf[56] = 1;
        elf[32] = 64;
        assert!(error(&elf).contains("no metadata"));
        elf[64] = PT_LOAD as u8;
        elf[110] = 1;
        assert!(error(&elf).contains("too large"));
        elf[39] = 255;
        assert!(error(&elf).contains("no 56 bytes"));
    }
}
