//! rbmq
