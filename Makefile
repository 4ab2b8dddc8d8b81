# Penstock's commands. `make help` lists them; each sets up what it needs by itself.
#
# scripts/bootstrap.sh makes .venv with the exact packages of requirements/, builds Penstock and
# installs it there, and does nothing where all that is done. What runs from .venv is therefore
# the installed, compiled package; PYTHONPATH=src runs the same source interpreted.

PY := .venv/bin/python
PYTEST := $(PY) -m pytest
INTERPRETED := PYTHONPATH=src PENSTOCK_EXPECT=interpreted
# Tests of what is compiled run on both builds; those of the client and of bench only compiled, and
# those that show that a simulation finds faults. Of those without simulations the branches that
# they reach can be counted.
COUNTED := $(wildcard $(addprefix tests/unit/,protocol engine operators runtime) tests/vectors)
COMPILED_BESIDE := $(addprefix tests/unit/, \
	auth/test_filter_set.py auth/test_login_queue.py bridge \
	services/test_garbage.py services/test_referral.py telemetry/test_histogram.py)
COMPILED_ONLY := $(addprefix tests/model/test_,link_faults.py cluster_faults.py sink_crashes.py)
BOTH_WAYS := $(COUNTED) $(COMPILED_BESIDE) $(filter-out $(COMPILED_ONLY),$(wildcard tests/model/test_*.py)) tests/fuzz
# Files of tests share the cores, those that take longest first (tests/conftest.py).
IN_PARALLEL := --numprocesses=auto --dist=loadfile --no-loadscope-reorder
# How long each part of `make torture` runs, and each target of `make fuzz`: 60 is the hourly size
# of torture, 600 the nightly one.
SECONDS ?= 60

# The S3 server of `make lake`: it stores on disk, and has conditional writes.
S3_SERVER ?= github.com/versity/versitygw/cmd/versitygw@v1.8.0
CHECKED := $(wildcard src tests examples benchmarks scripts packaging/container/health.py)

export PIP_DISABLE_PIP_VERSION_CHECK := 1
# Tests start hundreds of Pythons: without bytecode each would compile all that it imports.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help setup setup-tests demo demo-cluster test test-clocks check coverage fuzz torture lake bench format docs site lock clean

help: ## list the commands
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' Makefile

setup: ## make .venv and install Penstock there; the other commands do this first
	@sh scripts/bootstrap.sh

setup-tests:
	@sh scripts/bootstrap.sh --tests

demo: setup ## replay real sensor readings through broker and Spark, with crashes, into a table
	@$(PY) -m examples.temperatures

demo-cluster: setup ## the same with three machines: the primary's is lost, cut off, stopped; needs root for its network
	@$(PY) -m examples.temperatures --cluster --broker-kills 3

test: setup-tests check ## check, then run every test but those of torture
	$(INTERPRETED) PENSTOCK_BUDGET=0.2 $(PYTEST) -q $(IN_PARALLEL) -m 'not torture' $(BOTH_WAYS)
	$(PYTEST) -q $(IN_PARALLEL) -m 'not torture' tests

test-clocks: setup-tests ## every test with a clock that nobody synchronizes, with one that is, and a year ahead
	for clock in '--synchronized no' '--synchronized yes' '--days 365'; do \
		$(PY) -m tests.support.wall_clock $$clock $(PYTEST) -q $(IN_PARALLEL) -m 'not torture' tests || exit 1; \
	done

coverage: setup-tests ## which branches of protocol, engine and operators tests reach; fails below the floor
	@rm -f .coverage .coverage.*
	$(INTERPRETED) $(PY) -m coverage run -m pytest -q $(IN_PARALLEL) $(COUNTED)
	@$(PY) -m coverage combine --quiet
	PYTHONPATH=src $(PY) -m coverage report

check: setup ## format, lint, types, layers, documents and their site, docstrings, names and places of tests
	.venv/bin/ruff format --check $(CHECKED) setup.py
	.venv/bin/ruff check $(CHECKED) setup.py
	$(PY) -m mypy $(CHECKED)
	PYTHONPATH=src .venv/bin/lint-imports --no-logo
	PYTHONPATH=src $(PY) scripts/check_documents.py
	$(PY) scripts/build_site.py
	$(PY) scripts/check_docstrings.py
	PYTHONPATH=src $(PY) scripts/check_conformance.py

fuzz: setup-tests ## throw bytes at decoder and engine, guided by coverage (SECONDS=60 for each)
	@$(PY) -m pip install --quiet --require-hashes -r requirements/fuzz.txt
	PYTHONPATH=src:. $(PY) -m tests.fuzz decode --seconds $(SECONDS)
	PYTHONPATH=src:. $(PY) -m tests.fuzz serve --seconds $(SECONDS)

torture: setup-tests ## what takes long; power cuts, cut links and kills under load (SECONDS=600 at night)
	PENSTOCK_BUDGET=$$(($(SECONDS) / 6)) $(PYTEST) -q $(IN_PARALLEL) --timeout=3600 \
		-m 'torture or hypothesis' tests
	@$(PY) -m tests.model --first 100000 --seeds $$(($(SECONDS) * 20))
	@$(PY) -m tests.model.same_bytes --seeds $$(($(SECONDS) * 5))
	@$(PY) -m tests.attacks --seconds $(SECONDS) --write
	@$(PY) -m tests.crash.torture --seconds $$(($(SECONDS) / 2))
	@$(PY) -m tests.crash.bridge_torture --seconds $$(($(SECONDS) / 4))
	@$(PY) -m tests.crash.pipeline_torture --seconds $$(($(SECONDS) / 4))
	@$(PY) -m tests.crash.cluster_torture --seconds $$(($(SECONDS)))

lake: setup-tests ## tables in a real S3 server and a REST catalog, killed and spoiled (needs Go, Maven)
	GOBIN=$(CURDIR)/build/bin go install $(S3_SERVER)
	mvn -q -B -f tests/support/rest_catalog.xml dependency:copy-dependencies \
		-DoutputDirectory=$(CURDIR)/build/rest-catalog
	PATH=$(CURDIR)/build/bin:$$PATH $(PYTEST) -q tests/spark/test_killed_object_store.py \
		tests/spark/test_rest_catalog.py
	@for format in delta iceberg; do \
		PATH=$(CURDIR)/build/bin:$$PATH $(PY) -m tests.crash.pipeline_torture --store \
			--format $$format --seconds $(SECONDS) || exit 1; \
	done

bench: setup ## measure; see benchmarks/
	@$(PY) -m benchmarks.side_by_side --write
	@$(PY) -m benchmarks
	@$(PY) -m benchmarks.engine
	@$(PY) -m benchmarks.operating
	@$(PY) -m benchmarks.subscriptions
	@$(PY) -m benchmarks.memory
	@$(PY) -m benchmarks.shared
	@$(PY) -m benchmarks.durability
	@$(PY) -m benchmarks.window
	@$(PY) -m benchmarks.landing
	@$(PY) -m benchmarks.upkeep --write
	@$(PY) -m benchmarks.pushdown
	@$(PY) -m benchmarks.sql
	@$(PY) -m benchmarks.history
	@$(PY) -m benchmarks.instructions --record

format: setup ## let ruff rewrite what it can
	.venv/bin/ruff check --quiet --fix-only $(CHECKED) setup.py
	.venv/bin/ruff format $(CHECKED) setup.py

site: setup ## build the documents as a site, in build/site; strictly
	@$(PY) scripts/build_site.py

docs: setup ## rewrite the documents that are made from the source
	PYTHONPATH=src $(PY) scripts/write_configuration.py
	PYTHONPATH=src $(PY) scripts/write_commands.py
	PYTHONPATH=src $(PY) scripts/write_metrics.py
	PYTHONPATH=src $(PY) scripts/write_api.py
	PYTHONPATH=src $(PY) scripts/write_spark_options.py
	PYTHONPATH=src $(PY) scripts/write_python_api.py
	PYTHONPATH=src $(PY) scripts/write_dashboard.py
	PYTHONPATH=src $(PY) scripts/check_conformance.py --write
	PYTHONPATH=src $(PY) scripts/draw_states.py --write

lock: setup ## choose the newest allowed packages and write requirements/*.txt
	sh scripts/lock.sh

clean: ## remove all that these commands made here
	rm -rf .venv .node build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache .coverage .coverage.*
	rm -rf src/*.egg-info
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
