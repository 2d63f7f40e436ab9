//! Loading of objects: the ELF files that clang makes of bpf/*.c.
//!
//! The crate `aya-obj` reads an object and resolves its references. The system calls are here, so that the sizes of maps, and
//! which maps are shared by several objects, are decided before a program is loaded.

use std::collections::HashMap;
use std::ffi::CString;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use aya_obj::btf::{Btf, BtfFeatures, BtfKind};
use aya_obj::generated::{bpf_insn, bpf_map_type};
use aya_obj::{Function, Map, Object};

use crate::error::KernelError;
use crate::sys::{self, MapShape, ProgramSource};

/// The number of a call in bpf/netfilter.bpf.c that stands for the kernel's function `bpf_dynptr_from_skb`.
const DYNPTR_FROM_SKB: i32 = 0x6d_7101;

/// The opcode of a call, and the source register that makes it one of a kernel function.
const CALL: u8 = 0x85;
const KERNEL_FUNCTION: u8 = 2;

/// A value for a `const volatile` variable of an object.
pub(crate) type Globals<'a> = HashMap<&'a str, (&'a [u8], bool)>;

/// A loaded program.
#[derive(Debug)]
pub(crate) struct Program {
    pub(crate) fd: OwnedFd,
    /// The types of its object, and the object in the kernel.
    btf: Btf,
}

impl Program {
    /// The type id of a global function of the program, which another program can replace.
    pub(crate) fn function(&self, name: &str) -> Result<u32, KernelError> {
        self.btf
            .id_by_type_name_kind(name, BtfKind::Func)
            .map_err(|error| KernelError::Object(error.to_string()))
    }
}

/// An object that was read, with its maps in the kernel, and whose programs can be loaded.
pub(crate) struct Prepared {
    object: Object,
    btf: Btf,
    btf_fd: OwnedFd,
    /// Maps of this object alone. Programs keep them.
    _own_maps: Vec<OwnedFd>,
}

/// Reads an object, sets its variables, and refers it to maps: those of `shared` with their names, and new ones.
pub(crate) fn prepare(
    bytes: &[u8],
    globals: Globals<'_>,
    shared: &HashMap<&'static str, OwnedFd>,
) -> Result<Prepared, KernelError> {
    let bad = |error: &dyn std::fmt::Display| KernelError::Object(error.to_string());
    // In memory of its own, which an allocator aligns as the parser needs it.
    let aligned = bytes.to_vec();
    let mut object = Object::parse(&aligned).map_err(|error| bad(&error))?;
    object.patch_map_data(globals).map_err(|error| bad(&error))?;
    // All of them exist since Linux 6.0; tcx needs 6.6.
    let features = BtfFeatures::new(true, true, true, true, true, true, true, true);
    let btf = object.fixup_and_sanitize_btf(&features).map_err(|error| bad(&error))?.cloned();
    let btf =
        btf.ok_or_else(|| KernelError::Object("it has no type information: compile it with -g".to_owned()))?;
    let btf_fd = sys::load_btf(&btf.to_bytes()).map_err(KernelError::call("load type information"))?;

    let mut own = Vec::new();
    for (name, map) in &object.maps {
        if !shared.contains_key(name.as_str()) {
            own.push((name.clone(), create_own_map(name, map)?));
        }
    }
    let find = |name: &str| match shared.get(name) {
        Some(fd) => fd.as_raw_fd(),
        None => own.iter().find(|(own, _)| own == name).map_or(-1, |(_, fd)| fd.as_raw_fd()),
    };
    let maps: Vec<(String, i32, Map)> =
        object.maps.iter().map(|(name, map)| (name.clone(), find(name), map.clone())).collect();
    let sections = object.functions.keys().map(|(section, _)| *section).collect();
    object
        .relocate_maps(maps.iter().map(|(name, fd, map)| (name.as_str(), *fd, map)), &sections)
        .map_err(|error| bad(&error))?;
    object.relocate_calls(&sections).map_err(|error| bad(&error))?;
    Ok(Prepared { object, btf, btf_fd, _own_maps: own.into_iter().map(|(_, fd)| fd).collect() })
}

/// Creates a map that an object has for itself, such as its constants.
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

/// What a program is loaded as.
#[derive(Clone, Copy)]
pub(crate) struct LoadAs<'a> {
    pub(crate) kind: u32,
    pub(crate) attach_type: u32,
    pub(crate) replaces: Option<(BorrowedFd<'a>, u32)>,
}

impl Prepared {
    /// Loads the object's only program.
    pub(crate) fn load(self, load_as: LoadAs<'_>) -> Result<Program, KernelError> {
        let mut programs = self.object.programs.iter();
        let (Some((name, program)), None) = (programs.next(), programs.next()) else {
            return Err(KernelError::Object("it must have exactly one program".to_owned()));
        };
        let function = self
            .object
            .functions
            .get(&program.function_key())
            .ok_or_else(|| KernelError::Object(format!("program {name} has no code")))?;
        let fd = self.load_function(name, &program.license, function, load_as)?;
        Ok(Program { fd, btf: self.btf })
    }

    fn load_function(
        &self,
        name: &str,
        license: &CString,
        function: &Function,
        load_as: LoadAs<'_>,
    ) -> Result<OwnedFd, KernelError> {
        let mut code = function.instructions.clone();
        call_kernel_functions(&mut code)?;
        let (functions, lines) = (function.func_info.func_info_bytes(), function.line_info.line_info_bytes());
        let LoadAs { kind, attach_type, replaces } = load_as;
        let source = ProgramSource {
            name,
            kind,
            attach_type,
            license,
            code: &code,
            btf: self.btf_fd.as_fd(),
            functions: (&functions, function.func_info_rec_size),
            lines: (&lines, function.line_info_rec_size),
            replaces,
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

/// Puts the running kernel's ids in the place of the numbers that stand for its functions.
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
