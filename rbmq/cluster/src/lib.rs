//! Brokers of RBMQ that share topics: who is a member, and who owns which group of topics. etcd holds both, and nothing else: no message
//! passes it, and a broker whose etcd is away serves what it owns.
//!
//! [`etcd`] is a client of etcd's JSON gateway over HTTP/1.1, which every etcd since 3.4 has. It blocks, belongs to one thread, and has no
//! runtime.
#![forbid(unsafe_code)]

pub mod etcd;
