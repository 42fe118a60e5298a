//! Races that are planted in small kernels are found, and their correct forms are not.
//!
//! ```text
//!  OpenCL C ─ compile ─▶ code of the chip ─ run, in order of the waves ─▶ what is said of races
//! ```
//!
//! Waves run one after the other, so that no answer is wrong: a race is found by what is accessed.
//! Without LLVM's compilers nothing is looked at, and standard error says so; `scripts/amd.sh`,
//! which needs them, runs this too.

#![cfg(target_os = "linux")]

use std::process::Command;

use horton_driver::compile::compile;
use horton_driver::launch::{Argument, Launch, LoadedCode, run};
use horton_driver::settings::settings;

/// Two groups of two waves of 64, or of four waves of 32.
const GROUPS: u32 = 2;
const LOCAL: u32 = 128;

/// Returns what is said of a launch of the kernel `run`, which has the parameter `words`: as many
/// as there are work-items. Returns `None` without compilers.
fn remarks(body: &str) -> Option<Vec<String>> {
    if Command::new("clang-19").arg("--version").output().is_err() {
        eprintln!("races are not looked for: there is no clang-19");
        return None;
    }
    let source = format!(
        "__kernel __attribute__((reqd_work_group_size({LOCAL}, 1, 1)))\n\
         void run(__global uint *words) {{\n\
         const uint self = get_local_id(0), group = get_group_id(0), all = get_global_id(0);\n\
         {body}\n}}"
    );
    let code = compile(&source, "").unwrap();
    let code = LoadedCode::load(settings().target, &code, &settings().cache).unwrap();
    let mut words = vec![0u32; (GROUPS * LOCAL) as usize];
    let from = words.as_mut_ptr() as u64;
    let launch = Launch {
        kernel: "run",
        groups: GROUPS,
        local: LOCAL,
        arguments: &[Argument {
            is_memory: true,
            value: from.to_le_bytes().to_vec(),
        }],
        buffers: &[(from, from + 4 * words.len() as u64)],
        mixed: None,
        finds_races: true,
    };
    Some(run(&code, &launch).unwrap().1)
}

/// A race of those that `body` has says all of `parts`.
#[track_caller]
fn races(body: &str, parts: &[&str]) {
    let Some(remarks) = remarks(body) else { return };
    let is_it = |remark: &String| parts.iter().all(|part| remark.contains(part));
    assert!(remarks.iter().any(is_it), "{remarks:#?}");
}

#[track_caller]
fn does_not_race(body: &str) {
    assert_eq!(remarks(body).unwrap_or_default(), [""; 0]);
}

/// Each work-item reads what its neighbour wrote, `between` in between.
fn handed_on(between: &str) -> String {
    format!(
        "__local uint box[{LOCAL}]; box[self] = all; {between}\n\
         words[all] = box[self ^ 32] + box[self ^ 1];"
    )
}

#[test]
fn local_memory_needs_a_barrier() {
    does_not_race(&handed_on("barrier(CLK_LOCAL_MEM_FENCE);"));
    let parts = [
        "local memory",
        "Write of group 0, wave 0",
        "Read of group 0, wave",
        "ds_",
    ];
    races(&handed_on("mem_fence(CLK_LOCAL_MEM_FENCE);"), &parts);
}

#[test]
fn lanes_of_a_wave_need_a_barrier_too() {
    let body = |between| {
        format!(
            "__local ushort box[{LOCAL}]; box[self] = all; {between} words[all] = box[self ^ 1];"
        )
    };
    does_not_race(&body("barrier(CLK_LOCAL_MEM_FENCE);"));
    let parts = ["local memory", "wave 0, lane 1", "wave 0, lane 0", "ds_"];
    races(&body("mem_fence(CLK_LOCAL_MEM_FENCE);"), &parts);
}

#[test]
fn a_box_is_not_written_anew_before_all_have_read_it() {
    let body = |after| {
        format!(
            "__local uint box; uint sum = 0;\n\
             for (uint i = 0; i < 3; ++i) {{\n\
             if (self == 0) box = words[i]; barrier(CLK_LOCAL_MEM_FENCE);\n\
             sum += box; {after}\n}}\n\
             if (sum > 1000000) words[all] = sum;"
        )
    };
    does_not_race(&body("barrier(CLK_LOCAL_MEM_FENCE);"));
    races(
        &body(""),
        &["byte 0x0 of local memory", "Read of", "Write of"],
    );
}

#[test]
fn a_count_of_all_groups_needs_an_atomic() {
    does_not_race("atomic_inc(&words[5]);");
    races(
        "words[5] += 1;",
        &["byte 0x14 of buffer 0", "global_store", ".cl:4"],
    );
    // One in each group: only another group races with it.
    let parts = ["group 0, wave 0, lane 0", "group 1, wave 0, lane 0"];
    races("if (self == 0) words[5] += 1;", &parts);
    races(
        "if (self == 0) words[5] += 1; else atomic_inc(&words[5]);",
        &["; Update of"],
    );
}

#[test]
fn equal_values_race_and_neighbours_do_not() {
    races("words[3] = 7;", &["Write of group 0", "; Write of group"]);
    does_not_race("__global uchar *bytes = (__global uchar *)words; bytes[all] = 1;");
}

#[test]
fn what_others_update_is_read_by_a_volatile_load() {
    let read = |how: &str| {
        format!(
            "if (self == 0) atomic_inc(&words[0]);\n\
             if (self == 1) words[all] = *({how} __global uint *)&words[0];"
        )
    };
    does_not_race(&read("volatile"));
    races(&read(""), &["Read of group", "Update of group"]);
}
