//! The conformance suite on TCP: as it comes, with the smallest socket buffers, and cut at every byte.

use crate::lab::TcpLab;

rocketnet::conformance_tests!(plain, TcpLab::plain());
rocketnet::conformance_tests!(smallest_buffers, TcpLab::smallest_buffers());
rocketnet::conformance_tests!(every_byte, TcpLab::cut(1, 4_096, 100_000));
rocketnet::conformance_tests!(odd_pieces, TcpLab::cut(13, 7_000, 400_000));
