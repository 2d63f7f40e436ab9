# The entry points of the project. `make help` lists the targets; the work is done by scripts/.

.DEFAULT_GOAL := help
.PHONY: help setup build install deb wheel run run-cluster run-multimqc run-live test test-all nic reproduce fuzz deny coverage doc clean

help: ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1	\2/p' $(MAKEFILE_LIST) | expand -t 18

setup: ## install what a build needs (only what is missing) and fetch the crates
	@scripts/setup

build: setup ## build the rbmq command, optimised
	cargo build --release --locked -p rbmq-cli

install: setup ## install the C and C++ library (PREFIX=/usr/local, DESTDIR=, LIBDIR=PREFIX/lib)
	@PREFIX="$(PREFIX)" DESTDIR="$(DESTDIR)" LIBDIR="$(LIBDIR)" scripts/c-install

deb: setup ## build the Debian packages: each command with its unit, manual pages and completions; the C and C++ library
	@scripts/deb
	@scripts/deb-c

wheel: setup ## build the wheel of the Python package, optimised, in target/wheels (maturin from PyPI)
	@scripts/wheel

run: ## publish real files of this machine through a broker and compare checksums, until Ctrl-C (DEMO_SECONDS=5: for 5 s)
	@scripts/demo

run-cluster: ## three brokers and an etcd: files published to one are read from another, and an owner is killed and comes back (DEMO_SECONDS=5: then end)
	@scripts/demo-cluster

run-multimqc: setup ## push and pull through every set of MultiMQC's levels, and compare every byte
	@scripts/demo-multimqc

run-live: setup ## push a live picture through three nodes, to be watched in a browser, until Ctrl-C (DEMO_SECONDS=5: for 5 s)
	cargo run --release --locked -p rblive-cli -- demo

test: ## every test that needs no special hardware and few installs, in twenty minutes
	@scripts/test

test-all: ## the same and the rest: style, planted bugs, fuzzing, RDMA, Kafka, S3, browsers, players, the NIC, packages
	@scripts/test --all

nic: ## lint and simulate MultiMQC's NIC level (multimqc/rtl/); installs Verilator, Yosys and cocotb
	@scripts/nic

reproduce: setup ## measure every figure of the papers beside other systems, one to two hours, as root (REPRODUCE="paper1 fig5": these)
	@scripts/reproduce

fuzz: setup ## fuzz with libFuzzer (FUZZ_HOURS=1 for each target, FUZZ_TARGET=name for one)
	@scripts/fuzz

deny: setup ## check licences, bans, sources and advisories with cargo-deny
	@scripts/deny

coverage: setup ## measure line coverage of the tests with cargo-llvm-cov
	@scripts/coverage

doc: setup ## build the documentation of every crate
	RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps --locked

clean: ## remove all build outputs
	cargo clean
	rm -rf lab/fuzz/target lab/fuzz/artifacts
