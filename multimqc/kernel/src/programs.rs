//! The programs of a configuration, loaded but not attached.

use std::net::Ipv4Addr;
use std::os::fd::OwnedFd;

use aya_obj::generated::bpf_attach_type::{BPF_NETFILTER, BPF_TCX_INGRESS, BPF_XDP};
use aya_obj::generated::bpf_prog_type::{
    BPF_PROG_TYPE_NETFILTER, BPF_PROG_TYPE_SCHED_CLS, BPF_PROG_TYPE_XDP,
};

use crate::config::{Config, Mode};
use crate::error::KernelError;
use crate::maps::Maps;
use crate::object::{self, Globals};

static XDP: &[u8] = include_bytes!("../../bpf/objects/xdp.bpf.o");
static TCX: &[u8] = include_bytes!("../../bpf/objects/tcx.bpf.o");
static NETFILTER: &[u8] = include_bytes!("../../bpf/objects/netfilter.bpf.o");

pub(crate) const ATTACH_XDP: u32 = BPF_XDP as u32;
pub(crate) const ATTACH_TCX: u32 = BPF_TCX_INGRESS as u32;
pub(crate) const ATTACH_NETFILTER: u32 = BPF_NETFILTER as u32;

/// A kind of program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Xdp,
    Tcx,
    Netfilter,
}

impl Kind {
    /// The object, the kind of program, and the type of attachment.
    fn object(self) -> (&'static [u8], u32, u32) {
        match self {
            Kind::Xdp => (XDP, BPF_PROG_TYPE_XDP as u32, ATTACH_XDP),
            Kind::Tcx => (TCX, BPF_PROG_TYPE_SCHED_CLS as u32, ATTACH_TCX),
            Kind::Netfilter => (NETFILTER, BPF_PROG_TYPE_NETFILTER as u32, ATTACH_NETFILTER),
        }
    }
}

/// The kinds of programs that a configuration needs. The first stores pushes.
pub(crate) fn kinds(config: &Config) -> &'static [Kind] {
    match config.mode {
        Mode::Netfilter => &[Kind::Netfilter],
        Mode::Tcx => &[Kind::Tcx],
        // Without a trusted network no reply is longer than its request, and XDP makes all of them.
        _ if config.trusted.is_none() => &[Kind::Xdp],
        _ => &[Kind::Xdp, Kind::Tcx],
    }
}

/// A program in the kernel.
#[derive(Debug)]
pub(crate) struct Loaded {
    pub(crate) kind: Kind,
    pub(crate) program: OwnedFd,
}

fn network(trusted: Option<(Ipv4Addr, u8)>) -> (u32, u32) {
    match trusted {
        // No masked address equals this.
        None => (1, 0),
        Some((address, prefix)) => {
            let mask = u32::MAX.checked_shl(32 - u32::from(prefix)).unwrap_or(0);
            ((u32::from(address) & mask).to_be(), mask.to_be())
        }
    }
}

/// Loads the programs of a configuration.
pub(crate) fn load(config: &Config, maps: &Maps) -> Result<Vec<Loaded>, KernelError> {
    let kinds = kinds(config);
    kinds.iter().map(|kind| load_one(*kind, *kind != kinds[0], config, maps)).collect()
}

fn load_one(kind: Kind, behind: bool, config: &Config, maps: &Maps) -> Result<Loaded, KernelError> {
    let (network, mask) = network(config.trusted);
    let words = [
        ("writers_of_topic", maps.writers),
        ("max_message", config.max_message_bytes),
        ("max_reply", config.max_reply_bytes),
        ("verify_checksums", config.verify_checksums.into()),
        ("only_address", config.address.map_or(0, |address| u32::from(address).to_be())),
        ("trusted_network", network),
        ("trusted_mask", mask),
        ("records", config.records.into()),
        ("has_input_function", config.input_function.is_some().into()),
        ("has_output_function", config.output_function.is_some().into()),
        ("behind_xdp", behind.into()),
    ]
    .map(|(name, value)| (name, value.to_ne_bytes()));
    let ring_mask = (config.ring_bytes - 1).to_ne_bytes();
    let mut globals: Globals<'_> =
        words.iter().map(|(name, value)| (*name, (value.as_slice(), false))).collect();
    globals.insert("ring_mask", (&ring_mask, true));

    let wanted = [("multimqc_input", &config.input_function), ("multimqc_output", &config.output_function)];
    let functions: Vec<(&str, &[u8])> =
        wanted.into_iter().filter_map(|(name, object)| Some((name, object.as_deref()?))).collect();
    let (object, program_kind, attach_type) = kind.object();
    let program = object::prepare(object, globals, &maps.fds, &functions)?.load(program_kind, attach_type)?;
    Ok(Loaded { kind, program })
}
