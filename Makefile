# `make` lists the targets. demo and test set up what they need: see scripts/ensure-opencl.sh.

# Tests run on PoCL where it is installed, so that they do the same on every machine.
ON_POCL = $$(test -e /etc/OpenCL/vendors/pocl.icd && echo env OCL_ICD_VENDORS=pocl.icd)

DEBUG = $${CARGO_TARGET_DIR:-target}/debug

# Says how long each stage took. `.ci/run` collects these lines.
STAGE = scripts/stage.sh

.PHONY: help
help: ## list the targets
	@sed -n 's/^\([a-z]*\):.*## \(.*\)/\1\t\2/p' Makefile | expand -t 14

.PHONY: demo
demo: export RUSTFLAGS += --cfg horton_demo
demo: ## run the TPC-H queries on an OpenCL device and check the rows against DataFusion's own joins
	scripts/ensure-opencl.sh --profile demo
	cargo run --profile demo --example tpch_join -- --scale 0.1 --query all --check

# HORTON_TEST_SMALL=1, as .ci/run sets it, shortens oclgrind. The suites run in full all the same.
# The suites leave cores idle: all else runs beside them. BESIDE names targets that do so, too.
.PHONY: test
test: ## everything that must hold before a commit
	scripts/ensure-opencl.sh || { make bare; echo "Tests of the device were left out: there is none" >&2; exit 1; }
	$(MAKE) quick
	$(STAGE) build cargo test --workspace --no-run
	$(STAGE) programs cargo build --workspace --bins --examples
	scripts/beside.sh "$(MAKE) suites" "$(MAKE) checks $(BESIDE)"

.PHONY: suites
suites: ## all tests of the workspace
	$(ON_POCL) $(STAGE) suites scripts/suites.sh

# What make test runs beside the suites. The first needs no cargo, so that the suites have its lock.
.PHONY: checks
checks:
	$(ON_POCL) $(STAGE) tpch_join $(DEBUG)/examples/tpch_join --scale 0.01 --query all --check
	$(ON_POCL) $(STAGE) examples scripts/examples.sh $(DEBUG)/examples
	$(STAGE) clippy $(MAKE) clippy
	$(STAGE) doc $(MAKE) doc
	rm -rf $(DEBUG)/evaluation-data
	$(ON_POCL) $(STAGE) evaluation $(MAKE) evaluation SMALL=1 BIN=$(DEBUG)/examples OUT=$(DEBUG)/evaluation
	$(STAGE) compare scripts/compare/test.sh $(DEBUG) || [ $$? = 77 ]
	$(STAGE) bare scripts/bare.sh
	$(STAGE) python $(MAKE) python
	$(ON_POCL) $(STAGE) readme scripts/readme.sh
	$(STAGE) oclgrind $(MAKE) oclgrind

# These take a few seconds.
.PHONY: quick
quick:
	$(STAGE) fmt $(MAKE) fmt
	$(STAGE) lints $(MAKE) modules awaits words
	$(STAGE) features $(MAKE) features

# These take most of the time of joins. make check leaves them out.
SLOW = join::spill join::short join::limits join::engines join::tables join::resources \
	dynamic_filter::queries dynamic_filter::again star_schema:: promised::waits placement::consumers \
	placement::memory join::build_columns
.PHONY: check
check: ## in two minutes after a change in src/join: lints, unit tests, tables and joins in small (tests/README.md)
	scripts/ensure-opencl.sh
	$(MAKE) fmt modules awaits words
	cargo clippy -p horton-tables -p horton-join --all-targets -- -D warnings
	$(ON_POCL) cargo test -p horton-tables -p horton-join --lib
	$(ON_POCL) env HORTON_TEST_SMALL=1 cargo test -p horton-tables -p horton-join --test tables --test joins -- $(SLOW:%=--skip %)

.PHONY: bare
bare: ## everything that runs without OpenCL and without root; make test falls back to it
	$(MAKE) fmt modules awaits words clippy
	OCL_ICD_VENDORS=/none cargo test --workspace --lib
	OCL_ICD_VENDORS=/none cargo test --test processes no_device::
	cargo build --workspace --bin horton-sql --example tpch_join --example devices
	scripts/bare.sh

.PHONY: newest
newest: ## lint and test with the newest DataFusion 55.x in the place of the pinned one
	scripts/newest.sh || [ $$? = 77 ]

.PHONY: cluster
cluster: ## joins on workers of Ballista and of datafusion-distributed: processes on this machine (make test runs them, too)
	scripts/ensure-opencl.sh
	$(ON_POCL) cargo test -p horton-ballista -p horton-distributed

.PHONY: sql
sql: ## build the SQL shell: target/release/horton-sql (sql/README.md)
	cargo build --release -p horton-sql

# 77: Python or packages are missing, and not installed; their names are printed.
.PHONY: python
python: ## build the Python wheel and run its tests; EXAMPLE=1 runs an example
	scripts/ensure-opencl.sh
	$(ON_POCL) env EXAMPLE=$(EXAMPLE) scripts/python.sh || [ $$? = 77 ]

.PHONY: release
release: ## make the files of a release in target/dist: PARTS="crates wheels archive book sums"
	scripts/release.sh $(PARTS)

# 77: no root of Debian can be made here.
.PHONY: installs
installs: ## install what make release made in bare roots of Debian 12 and 13, and use it there
	scripts/installs.sh || [ $$? = 77 ]

# BIN=DIR runs the programs in DIR instead of building them: no cargo is needed (CONTRIBUTING.md).
EVALUATED = evaluation devices tpch_join sql_bench device_bench paper_figures
# Only variables of the command line count, none of the environment.
GIVEN = $(if $(filter command,$(firstword $(origin $1))),$2 '$($1)')
GIVEN_OR = $(if $(filter command,$(firstword $(origin $1))),$($1),$2)
EVALUATION = $(call GIVEN,SCALE,--scale) $(call GIVEN,REPEAT,--repeat) $(call GIVEN,ROWS,--rows) \
	$(call GIVEN,DEVICE,--device) $(call GIVEN,OUT,--out) $(call GIVEN,DATA,--data) \
	$(call GIVEN,PARTS,--parts) $(call GIVEN,COMMIT,--commit) $(call GIVEN,PYTHON,--python) \
	$(if $(filter-out 0,$(SMALL)),--small)
.PHONY: evaluation
evaluation: ## measure all on this machine, charts and all: SMALL=1 SCALE=1 REPEAT=5 ROWS=1e7 DEVICE=auto OUT=DIR BIN=DIR
	$(if $(BIN),,scripts/ensure-opencl.sh --release)
	$(if $(BIN),,cargo build --release -p horton-join -p horton-tables -p horton-robust \
		$(EVALUATED:%=--example %) --bin robust)
	"$(or $(BIN),$${CARGO_TARGET_DIR:-target}/release/examples)"/evaluation $(strip $(EVALUATION))

COMPARED = $(call GIVEN,BASE,--base) $(call GIVEN,HEAD,--head) $(call GIVEN,BASE_BIN,--base-bin) \
	$(call GIVEN,HEAD_BIN,--head-bin) $(call GIVEN,SCALE,--scale) $(call GIVEN,REPEAT,--repeat) \
	$(call GIVEN,QUERIES,--queries) $(call GIVEN,CREATE,--create) $(call GIVEN,ONLY,--only) \
	$(call GIVEN,DEVICE,--device) $(call GIVEN,DATA,--data) $(call GIVEN,OUT,--out)
.PHONY: compare
compare: ## is a commit slower than another, above 3 % and noise: BASE=COMMIT HEAD=COMMIT SCALE=1 REPEAT=5
	python3 -B scripts/compare $(strip $(COMPARED))

ORDERS ?= 20
SCALE_GIVEN = $(if $(filter command,$(firstword $(origin SCALE))),$(SCALE),1)
# Without DATA and QUERIES: TPC-H at SCALE, made once. ROBUST has more options of the program.
.PHONY: robust
robust: TPCH = $${CARGO_TARGET_DIR:-target}/robust/tpch-$(SCALE_GIVEN)
robust: ## how little times depend on the order of tables in SQL: DATA=DIR QUERIES=DIR ORDERS=20
	scripts/ensure-opencl.sh --release
	$(if $(and $(DATA),$(QUERIES)),,test -e "$(TPCH)/queries/q22.sql" || \
		cargo run --release --example tpch_join -- --scale $(SCALE_GIVEN) --write "$(TPCH)")
	cargo run --release -p horton-robust -- orders --orders $(ORDERS) \
		--data "$(or $(DATA),$(TPCH)/tables)" --queries "$(or $(QUERIES),$(TPCH)/queries)" $(ROBUST)

DURATION ?= 60
SEED ?= $$(date +%s)
# PROFILE=--release is faster, but there OpenCL calls do not fail on demand.
PROFILE ?=
.PHONY: fuzz
fuzz: ## compare random joins, and random SQL as long, with DataFusion's own: DURATION=600 (seconds) SEED=7 PROFILE=--release
	scripts/ensure-opencl.sh $(PROFILE)
	HORTON_FUZZ_DURATION=$(DURATION) HORTON_FUZZ_SEED=$(SEED) $(ON_POCL) cargo test $(PROFILE) --test fuzz -- --test-threads=1 random:: queries::

.PHONY: soak
soak: ## 32 queries at once, some dropped midway, with all memory given back: DURATION=600 (seconds)
	scripts/ensure-opencl.sh --release
	HORTON_SOAK_DURATION=$(DURATION) $(ON_POCL) cargo test --release --test fuzz soak::

SEEDS ?= 200
.PHONY: seeds
seeds: ## fill tables to the paper's loads without growing, for SEEDS=200 seeds, on the device and in the model
	scripts/ensure-opencl.sh --release
	HORTON_LOAD_SEEDS=$(SEEDS) $(ON_POCL) cargo test --release -p horton-tables --test tables -- --nocapture --test-threads=1 table_ops::load:: cuckoo::tables_fill

MIXTURES ?= 40
.PHONY: operations
operations: ## a million random operations on each kind of table against model and HashMap: MIXTURES=40 SEED=7
	scripts/ensure-opencl.sh --release
	HORTON_TABLE_OPS=$(MIXTURES) HORTON_TABLE_SEED=$(SEED) $(ON_POCL) cargo test --release -p horton-tables --test tables -- --nocapture --test-threads=1 table_ops::fuzz::
	$(ON_POCL) cargo test --release -p horton-tables --test tables -- --nocapture --test-threads=1 dynamic::suite::a_million

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
words: ## check comments and Markdown for long lines, sentences that are hard to read, and dead links
	cargo run -q -p horton-lint -- words
	scripts/results.py --check

.PHONY: features
features: ## check that DataFusion is compiled once, whichever member is built
	scripts/features.sh

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

.PHONY: amd
amd: ## self-test, tables and joins as AMD machine code, on an emulated GPU
	scripts/amd.sh

# SECONDS_MOST ends it earlier. WORDS=gfx90a runs the kernels as AMD machine code, and not on PoCL.
SECONDS_MOST ?= 86400
WORDS ?= gfx90a pocl
.PHONY: simulate
simulate: ## joins on a GPU that is not there, whose calls and commands fail, late or never, by a seed: SEEDS=1000 SEED=1 TIMES=1 WORDS=gfx90a PROFILE=--release
	scripts/amd.sh simulate $(call GIVEN_OR,SEED,1) $(call GIVEN_OR,SEEDS,1000) $(SECONDS_MOST) '$(WORDS)'

# FAULTS="7 12" are some of them. The table is in target/planted/table.md.
.PHONY: planted
planted: ## which tests find which faults of tests/planted (hours): FAULTS="7 12"
	$(ON_POCL) scripts/planted.sh $(call GIVEN_OR,FAULTS,)

.PHONY: portability
portability: ## compile the kernels for AMD and Intel GPUs, which need not be there
	scripts/portability.sh

.PHONY: durations
durations: ## write how long the stages of the last .ci/run took into tests/README.md: STAGES=FILE
	STAGES=$(STAGES) scripts/durations.sh --write

# The last stages of .ci/run.
.PHONY: ci-portability ci-book ci-rusticl ci-newest ci-amd
ci-portability ci-book:
	$(STAGE) $(@:ci-%=%) $(MAKE) $(@:ci-%=%)

# 77: this machine lets no Debian 13 root be set up; the reason is printed.
ci-rusticl:
	$(STAGE) rusticl scripts/rusticl.sh || [ $$? = 77 ]

# 77: its compilers cannot be installed here; the reason is printed.
ci-amd:
	$(STAGE) amd scripts/amd.sh || [ $$? = 77 ]

# A newer DataFusion is news, not a fault of this commit.
ci-newest:
	$(STAGE) newest timeout 1800 $(MAKE) newest || echo "Does not work with the newest DataFusion 55.x: see above"
