# `make` lists the targets. demo and test set up what they need: see scripts/ensure-opencl.sh.

# Tests run on PoCL where it is installed, so that they do the same on every machine.
ON_POCL = $$(test -e /etc/OpenCL/vendors/pocl.icd && echo env OCL_ICD_VENDORS=pocl.icd)

# Everything is built as a part of the whole workspace: a member alone has other features, and
# DataFusion would be built twice.
DEBUG = $${CARGO_TARGET_DIR:-target}/debug

.PHONY: help
help: ## list the targets
	@sed -n 's/^\([a-z]*\):.*## \(.*\)/\1\t\2/p' Makefile | expand -t 14

.PHONY: demo
demo: ## run the TPC-H queries on an OpenCL device and check the rows against DataFusion's own joins
	scripts/ensure-opencl.sh --profile demo
	cargo run --profile demo --example tpch_join -- --scale 0.1 --query all --check

# HORTON_TEST_SMALL=1, as .ci/run sets it, shortens oclgrind. The suites run in full all the same.
.PHONY: test
test: ## everything that must hold before a commit
	scripts/ensure-opencl.sh || { make bare; echo "Tests of the device were left out: there is none" >&2; exit 1; }
	$(MAKE) fmt
	$(MAKE) clippy
	$(MAKE) modules
	$(MAKE) awaits
	$(MAKE) words
	$(ON_POCL) env -u HORTON_TEST_SMALL cargo test --workspace
	cargo build --workspace --bin horton-sql $(EVALUATED:%=--example %)
	$(ON_POCL) $(DEBUG)/examples/tpch_join --scale 0.01 --query all --check
	rm -rf $(DEBUG)/evaluation-data
	$(ON_POCL) $(MAKE) evaluation SMALL=1 BIN=$(DEBUG)/examples OUT=$(DEBUG)/evaluation
	scripts/bare.sh
	$(MAKE) python
	$(ON_POCL) scripts/readme.sh
	$(MAKE) doc
	$(MAKE) oclgrind

# What make check leaves out: most of the time, for disks, pools and devices that are too small.
SLOW = join::spill join::short join::limits join::engines sideways::queries
.PHONY: check
check: ## in three minutes after a build: lints, unit tests, tables and joins in small (docs/testing.md)
	scripts/ensure-opencl.sh
	$(MAKE) fmt
	$(MAKE) clippy
	$(MAKE) modules
	$(MAKE) awaits
	$(MAKE) words
	$(ON_POCL) cargo test --workspace --lib
	$(ON_POCL) env HORTON_TEST_SMALL=1 cargo test --workspace --test tables
	$(ON_POCL) env HORTON_TEST_SMALL=1 cargo test --workspace --test joins -- $(SLOW:%=--skip %)

.PHONY: bare
bare: ## everything that runs without OpenCL and without root; make test falls back to it
	$(MAKE) fmt
	$(MAKE) clippy
	$(MAKE) modules
	$(MAKE) awaits
	$(MAKE) words
	OCL_ICD_VENDORS=/none cargo test --workspace --lib
	OCL_ICD_VENDORS=/none cargo test --workspace --test processes no_device::
	cargo build --workspace --bin horton-sql --example tpch_join --example devices
	scripts/bare.sh

.PHONY: newest
newest: ## lint and test with the newest DataFusion 55.x in the place of the pinned one
	scripts/newest.sh || [ $$? = 77 ]

.PHONY: cluster
cluster: ## joins on workers of Ballista and of datafusion-distributed: processes on this machine (make test runs them, too)
	scripts/ensure-opencl.sh
	cargo build --workspace --examples
	$(ON_POCL) cargo test --workspace --test cluster

.PHONY: sql
sql: ## build the SQL shell: target/release/horton-sql (sql/README.md)
	cargo build --workspace --release --bin horton-sql

# 77: Python or packages are missing, and not installed; their names are printed.
.PHONY: python
python: ## build the Python wheel and run its tests; EXAMPLE=1 runs an example
	scripts/ensure-opencl.sh
	$(ON_POCL) env EXAMPLE=$(EXAMPLE) scripts/python.sh || [ $$? = 77 ]

# BIN=DIR runs the programs in DIR instead of building them: no cargo is needed (CONTRIBUTING.md).
EVALUATED = evaluation devices tpch_join sql_bench device_bench paper_figures
# Only variables of the command line count, none of the environment.
GIVEN = $(if $(filter command,$(firstword $(origin $1))),$2 '$($1)')
EVALUATION = $(call GIVEN,SCALE,--scale) $(call GIVEN,REPEAT,--repeat) $(call GIVEN,ROWS,--rows) \
	$(call GIVEN,DEVICE,--device) $(call GIVEN,OUT,--out) $(call GIVEN,DATA,--data) \
	$(call GIVEN,PARTS,--parts) $(call GIVEN,COMMIT,--commit) $(call GIVEN,PYTHON,--python) \
	$(if $(filter-out 0,$(SMALL)),--small)
.PHONY: evaluation
evaluation: ## measure all on this machine, charts and all: SMALL=1 SCALE=1 REPEAT=5 ROWS=1e7 DEVICE=auto OUT=DIR BIN=DIR
	$(if $(BIN),,scripts/ensure-opencl.sh --release)
	$(if $(BIN),,cargo build --workspace --release $(EVALUATED:%=--example %))
	"$(or $(BIN),$${CARGO_TARGET_DIR:-target}/release/examples)"/evaluation $(strip $(EVALUATION))

DURATION ?= 60
SEED ?= $$(date +%s)
# PROFILE=--release is faster, but there OpenCL calls do not fail on demand.
PROFILE ?=
.PHONY: fuzz
fuzz: ## compare random joins, and random SQL as long, with DataFusion's own: DURATION=600 (seconds) SEED=7 PROFILE=--release
	scripts/ensure-opencl.sh $(PROFILE)
	HORTON_FUZZ_DURATION=$(DURATION) HORTON_FUZZ_SEED=$(SEED) $(ON_POCL) cargo test --workspace $(PROFILE) --test fuzz -- --test-threads=1 random:: queries::

.PHONY: soak
soak: ## 32 queries at once, some dropped midway, with all memory given back: DURATION=600 (seconds)
	scripts/ensure-opencl.sh --release
	HORTON_SOAK_DURATION=$(DURATION) $(ON_POCL) cargo test --release --test fuzz soak::

SEEDS ?= 200
.PHONY: seeds
seeds: ## fill tables to the paper's loads without growing, for SEEDS=200 seeds, on the device and in the model
	scripts/ensure-opencl.sh --release
	HORTON_LOAD_SEEDS=$(SEEDS) $(ON_POCL) cargo test --release --test tables -- --nocapture --test-threads=1 table_ops::load:: cuckoo::tables_fill

MIXTURES ?= 40
.PHONY: operations
operations: ## a million random operations on each kind of table against model and HashMap: MIXTURES=40 SEED=7
	scripts/ensure-opencl.sh --release
	HORTON_TABLE_OPS=$(MIXTURES) HORTON_TABLE_SEED=$(SEED) $(ON_POCL) cargo test --release --test tables -- --nocapture --test-threads=1 table_ops::fuzz::
	$(ON_POCL) cargo test --release --test tables -- --nocapture --test-threads=1 dynamic::suite::a_million

.PHONY: fmt
fmt: ## check the formatting
	cargo fmt --all --check

.PHONY: clippy
clippy: ## lint, warnings are errors
	cargo clippy --workspace --all-targets -- -D warnings

.PHONY: modules
modules: ## check that no modules import each other in a circle; DRAW=1 draws docs/architecture.md anew
	cargo run -q -p horton-lint -- modules $(if $(DRAW),--draw)

.PHONY: awaits
awaits: ## check that shared state changed before an await is right if its future is dropped or left there
	cargo run -q -p horton-lint -- awaits

.PHONY: words
words: ## check comments for long sentences and long lines, and the links between Markdown files
	cargo run -q -p horton-lint -- words

# With the examples, so that dependencies have the features that clippy has checked them with.
.PHONY: doc
doc: ## build the documentation, warnings are errors
	RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps --lib --bins --examples

.PHONY: book
book: ## build the book of docs/ in target/book
	scripts/book.sh

.PHONY: oclgrind
oclgrind: ## run the table tests with data race and memory checks (oclgrind)
	scripts/oclgrind.sh

.PHONY: memcheck
memcheck: ## run the unsafe code of the device layer and the loader under valgrind, on PoCL
	scripts/memcheck.sh

.PHONY: rusticl
rusticl: ## TPC-H, the join tests and joins.slt on Mesa's rusticl, in a Debian 13 root of its own
	scripts/rusticl.sh

.PHONY: portability
portability: ## compile the kernels for AMD and Intel GPUs, which need not be there
	scripts/portability.sh
