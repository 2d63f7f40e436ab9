//! Loading of objects: the ELF files that clang makes of multimqc/bpf/*.c.
//!
//! The crate `aya-obj` reads an object and resolves its references. The system calls are made here, so that the sizes of maps, and the
//! maps that several objects share, are decided before a program is loaded.

use std::collections::HashMap;
use std::ffi::CString;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use aya_obj::btf::{Btf, BtfFeatures, BtfKind};
use aya_obj::generated::{bpf_insn, bpf_map_type};
use aya_obj::{Function, Map, Object};

use crate::error::KernelError;
use crate::sys::{self, MapShape, ProgramSource};

/// The number of a call in multimqc/bpf/netfilter.bpf.c that stands for the kernel's function `bpf_dynptr_from_skb`.
const DYNPTR_FROM_SKB: i32 = 0x6d_7101;

/// The opcode of a call, and the source registers that make it one of a function of the object, and of the kernel.
const CALL: u8 = 0x85;
const OWN_FUNCTION: u8 = 1;
const KERNEL_FUNCTION: u8 = 2;

/// The opcode that loads an address, and the source register that makes it a function's.
const LOAD_ADDRESS: u8 = 0x18;
const FUNCTION_ADDRESS: u8 = 4;

/// A value for a `const volatile` variable of an object.
pub(crate) type Globals<'a> = HashMap<&'a str, (&'a [u8], bool)>;

/// An object that was read, with its maps in the kernel, and whose programs can be loaded.
pub(crate) struct Prepared {
    object: Object,
    btf_fd: OwnedFd,
    /// Maps of this object alone. Programs keep them.
    _own_maps: Vec<OwnedFd>,
}

/// Reads an object, sets its variables, replaces its functions, and connects it with maps: those of `shared` with their names, and new
/// ones.
pub(crate) fn prepare(
    bytes: &[u8],
    globals: Globals<'_>,
    shared: &HashMap<&'static str, OwnedFd>,
    functions: &[(&str, &[u8])],
) -> Result<Prepared, KernelError> {
    let mut object = parse(bytes)?;
    object.patch_map_data(globals).map_err(bad)?;
    // All of them exist since Linux 6.0; tcx needs 6.6.
    let features = BtfFeatures::new(true, true, true, true, true, true, true, true);
    let btf = object.fixup_and_sanitize_btf(&features).map_err(bad)?;
    let btf =
        btf.ok_or_else(|| KernelError::Object("it has no type information: compile it with -g".to_owned()))?;
    let btf_fd = sys::load_btf(&btf.to_bytes()).map_err(KernelError::call("load type information"))?;
    let mut own_maps = relocate_maps(&mut object, shared)?;
    for (name, bytes) in functions {
        own_maps.extend(put_function(&mut object, name, bytes)?);
    }
    let sections = object.functions.keys().map(|(section, _)| *section).collect();
    object.relocate_calls(&sections).map_err(bad)?;
    Ok(Prepared { object, btf_fd, _own_maps: own_maps })
}

fn bad(error: impl std::fmt::Display) -> KernelError {
    KernelError::Object(error.to_string())
}

fn parse(bytes: &[u8]) -> Result<Object, KernelError> {
    // In memory of its own, which an allocator aligns as the parser needs it.
    let aligned = bytes.to_vec();
    Object::parse(&aligned).map_err(bad)
}

/// Refers an object to the shared maps with the names of its maps. Returns the maps that are the object's own.
fn relocate_maps(
    object: &mut Object,
    shared: &HashMap<&'static str, OwnedFd>,
) -> Result<Vec<OwnedFd>, KernelError> {
    let mut own = Vec::new();
    let mut maps: Vec<(String, i32, Map)> = Vec::new();
    for (name, map) in &object.maps {
        let fd = match shared.get(name.as_str()) {
            Some(fd) => fd.as_raw_fd(),
            None => {
                own.push(create_own_map(name, map)?);
                own.last().map_or(-1, OwnedFd::as_raw_fd)
            }
        };
        maps.push((name.clone(), fd, map.clone()));
    }
    let sections = object.functions.keys().map(|(section, _)| *section).collect();
    object
        .relocate_maps(maps.iter().map(|(name, fd, map)| (name.as_str(), *fd, map)), &sections)
        .map_err(bad)?;
    Ok(own)
}

/// Replaces an object's function with this name by the only function of a user's object. Returns the function's maps.
fn put_function(object: &mut Object, name: &str, bytes: &[u8]) -> Result<Vec<OwnedFd>, KernelError> {
    let mut user = parse(bytes)?;
    let maps = relocate_maps(&mut user, &HashMap::new())?;
    let function = only_program(&user)?.1;
    if user.functions.len() > 1 || function.instructions.iter().any(calls_a_function) {
        return Err(KernelError::Object("a function calls no other: declare them static inline".to_owned()));
    }
    let place = object.functions.values_mut().find(|place| place.name == name);
    let place = place.ok_or_else(|| KernelError::Object(format!("there is no {name} to replace")))?;
    place.instructions.clone_from(&function.instructions);
    // The kernel wants a line for each function, and this is not the user's source.
    place.line_info.line_info.truncate(1);
    Ok(maps)
}

/// Whether an instruction calls, or refers to, another function of its object.
fn calls_a_function(insn: &bpf_insn) -> bool {
    let (call, address) = (insn.code == CALL, insn.code == LOAD_ADDRESS);
    call && insn.src_reg() == OWN_FUNCTION || address && insn.src_reg() == FUNCTION_ADDRESS
}

/// The program of an object that has one.
fn only_program(object: &Object) -> Result<(&String, &Function, &CString), KernelError> {
    let mut programs = object.programs.iter();
    let (Some((name, program)), None) = (programs.next(), programs.next()) else {
        return Err(KernelError::Object("it must have exactly one program".to_owned()));
    };
    match object.functions.get(&program.function_key()) {
        Some(function) => Ok((name, function, &program.license)),
        None => Err(KernelError::Object(format!("program {name} has no code"))),
    }
}

/// Creates a map that only one object has, such as its constants.
fn create_own_map(name: &str, map: &Map) -> Result<OwnedFd, KernelError> {
    let constant = name.starts_with(".rodata");
    let shape = MapShape {
        kind: map.map_type(),
        key_bytes: map.key_size(),
        value_bytes: map.value_size(),
        entries: map.max_entries(),
        // BPF_F_RDONLY_PROG
        flags: map.map_flags() | if constant { 1 << 7 } else { 0 },
    };
    let fd = sys::create_map(name, shape).map_err(KernelError::call("create a map"))?;
    if !map.data().is_empty() && map.map_type() == bpf_map_type::BPF_MAP_TYPE_ARRAY as u32 {
        sys::update_map(fd.as_fd(), 0, map.data()).map_err(KernelError::call("set constants"))?;
    }
    if constant {
        sys::freeze_map(fd.as_fd()).map_err(KernelError::call("freeze constants"))?;
    }
    Ok(fd)
}

impl Prepared {
    /// Loads the object's only program, as one of this kind for this type of attachment.
    pub(crate) fn load(self, kind: u32, attach_type: u32) -> Result<OwnedFd, KernelError> {
        let (name, function, license) = only_program(&self.object)?;
        let mut code = function.instructions.clone();
        call_kernel_functions(&mut code)?;
        let (functions, lines) = (function.func_info.func_info_bytes(), function.line_info.line_info_bytes());
        let source = ProgramSource {
            name,
            kind,
            attach_type,
            license,
            code: &code,
            btf: self.btf_fd.as_fd(),
            functions: (&functions, function.func_info_rec_size),
            lines: (&lines, function.line_info_rec_size),
        };
        sys::load_program(&source).map_err(|(error, log)| KernelError::Verifier {
            program: name.to_owned(),
            error,
            log: last_lines(&log),
        })
    }
}

/// The end of the verifier's explanation, where the reason is.
fn last_lines(log: &str) -> String {
    let lines: Vec<&str> = log.lines().collect();
    lines[lines.len().saturating_sub(30)..].join("\n")
}

/// Replaces the numbers that stand for functions of the kernel by the ids of these functions in the running kernel.
fn call_kernel_functions(code: &mut [bpf_insn]) -> Result<(), KernelError> {
    let calls = |insn: &bpf_insn| insn.code == CALL && insn.src_reg() == 0 && insn.imm == DYNPTR_FROM_SKB;
    if !code.iter().any(calls) {
        return Ok(());
    }
    let kernel =
        Btf::from_sys_fs().map_err(|error| KernelError::Object(format!("the kernel's types: {error}")))?;
    let id = kernel.id_by_type_name_kind("bpf_dynptr_from_skb", BtfKind::Func).map_err(|_| {
        KernelError::Object("this kernel has no bpf_dynptr_from_skb: it is older than 6.4".to_owned())
    })?;
    for insn in code.iter_mut().filter(|insn| calls(insn)) {
        insn.set_src_reg(KERNEL_FUNCTION);
        insn.imm = id as i32;
    }
    Ok(())
}
