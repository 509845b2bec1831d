# `make` alone lists what there is. Everything needs Go and git, nothing else;
# what is pinned beside the product's go.mod is in modules under tools/.

SHELL := /bin/sh
.DELETE_ON_ERROR:
.PHONY: kubernetes old-tools help demo dev build functions deploy test test-all test-tools test-aws bench bench-aws simulate mutations soak synth site runner-image check generate clean format vet lint generated imports FORCE

GO ?= go
export GOWORK := off
# One way to build, so that all targets share the build cache: without cgo, which
# nothing needs but the race detector, and without the paths of this folder, so
# that a clone elsewhere finds it too.
export CGO_ENABLED := 0
export GOFLAGS := $(filter-out -trimpath,$(GOFLAGS)) -trimpath
# The day that chooses what a short run tries, of what it cannot try all.
export FAIRLEAD_TEST_DAY ?= $(shell date -u +%j | sed 's/^0*//')

# A tool configuration that is not there makes the tool complain in its output.
ifneq ($(TF_CLI_CONFIG_FILE),)
ifeq ($(wildcard $(TF_CLI_CONFIG_FILE)),)
unexport TF_CLI_CONFIG_FILE
endif
endif

BUILD := $(GO) build -ldflags '-s -w'
# The modules of the workshop that have code of ours.
TOOL_MODULES := tools/tofu

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: build bin/tofu-tool ## Deploy examples/shop from nothing: the product in a minute
	@FAIRLEAD_TOFU=$$(bin/tofu-tool) && export FAIRLEAD_TOFU && sh tools/demo.sh

dev: build bin/tofu-tool ## Run the control plane and a runner here, until Ctrl-C
	@FAIRLEAD_TOFU=$$(bin/tofu-tool) && export FAIRLEAD_TOFU && exec bin/fairlead dev

build: bin/fairlead bin/fairlead-runner bin/fairlead-runner-clusters ## Build what ships: bin/fairlead and bin/fairlead-runner, and the latter with every executor

functions: ## Build the functions for Lambda into bin/functions, and print their sizes
	@$(GO) run ./tools/functions -out bin/functions

# What is up to date is the go command's business.
bin/fairlead: FORCE
	@$(BUILD) -tags clusters -o $@ ./cmd/fairlead
bin/fairlead-runner: FORCE
	@$(BUILD) -o $@ ./runner
# As it is in the runner's image: the clients of clusters would cost every other
# agent a quarter of its memory.
bin/fairlead-runner-clusters: FORCE
	@$(BUILD) -tags clusters -o $@ ./runner
bin/tofu-tool: FORCE
	@$(GO) build -C tools/tofu -o $(CURDIR)/$@ .
bin/gotestsum: FORCE
	@$(GO) build -C tools/gotestsum -o $(CURDIR)/$@ gotest.tools/gotestsum
bin/staticcheck: FORCE
	@$(GO) build -C tools/lint -o $(CURDIR)/$@ honnef.co/go/tools/cmd/staticcheck

# Packages that use goroutines are watched by the race detector. Tests choose
# small sizes: 100 seeds of the simulator, streams of 4 MiB, and by the day of the
# year five planted mistakes and one of several cases that differ in little
# (tools/shortrun). They take the pinned OpenTofu alone, whatever is on PATH.
# tools/testrun has the rules; with STRICT=1 a skipped test fails that it does not list.
STRICT ?=
test: bin/tofu-tool bin/gotestsum ## Run every package's tests with small sizes (STRICT=1: fail on a skip): eight minutes
	@FAIRLEAD_TOFU=$$(bin/tofu-tool --pinned) && export FAIRLEAD_TOFU && \
		$(GO) run ./tools/testrun -short $(if $(STRICT),-strict)

# Each server and each tool is there, or the test that needs it fails.
REQUIRED := FAIRLEAD_REQUIRE_DYNAMODB=1 FAIRLEAD_REQUIRE_MOTO=1 FAIRLEAD_REQUIRE_SQS=1 FAIRLEAD_REQUIRE_KUBERNETES=1 FAIRLEAD_REQUIRE_DOCKER=1 \
	FAIRLEAD_REQUIRE_CFN_LINT=1 FAIRLEAD_REQUIRE_CFN_GUARD=1 FAIRLEAD_REQUIRE_IAM_SIMULATOR=1 FAIRLEAD_REQUIRE_SYSTEMD=1 FAIRLEAD_REQUIRE_CGROUP=1 \
	FAIRLEAD_REQUIRE_OLD_TOOLS=1 FAIRLEAD_REQUIRE_GCS=1 FAIRLEAD_REQUIRE_AZURITE=1

test-all: build bin/tofu-tool bin/gotestsum test-tools old-tools ## Run every test in full, then five minutes of soak: three quarters of an hour
	@FAIRLEAD_TOFU=$$(bin/tofu-tool --pinned) && FAIRLEAD_AWS_PROVIDER=$$($(GO) run ./tools/awsprovider) && \
		export FAIRLEAD_TOFU FAIRLEAD_AWS_PROVIDER && \
		$(REQUIRED) FAIRLEAD_REQUIRE_AWS_PROVIDER=1 FAIRLEAD_TEST_IMAGE=1 $(GO) run ./tools/testrun -strict
	@$(MAKE) --no-print-directory soak DURATION=5m

test-tools: kubernetes ## Install what tests need besides Go: Debian packages where apt is, and the Kubernetes API server
	@sh tools/testtools.sh

# What cannot be had for it, a server or a tool, is named and fails it.
test-aws: bin/tofu-tool ## Deploy an app through the synthesised stack, on servers of AWS's kind
	@FAIRLEAD_TOFU=$$(bin/tofu-tool --pinned) FAIRLEAD_TEST_IMAGE=1 FAIRLEAD_REQUIRE_DYNAMODB=1 FAIRLEAD_REQUIRE_MOTO=1 FAIRLEAD_REQUIRE_SQS=1 \
		$(GO) test -timeout 20m ./functions/... ./infra/... ./pkg/queue/sqs ./pkg/blob/s3 ./pkg/joblog/cloudwatch ./pkg/joblog/dynamo ./pkg/artifact/ecr ./pkg/store/dynamo ./pkg/seal/kms ./pkg/eventbus/... ./pkg/identity/awsiam/...

old-tools: ## Build the oldest Terraform and OpenTofu that are supported, once: eight minutes on two cores
	@$(GO) run ./tools/oldtools

kubernetes: ## Build the Kubernetes API server that tests use, once: six minutes on two cores
	@$(GO) run ./tools/kubeserver

# With SMOKE=1 every section runs once, as short as it can be: two minutes.
SMOKE ?=
bench: build bin/tofu-tool ## Measure; print a table and write bench/results.json (SMOKE=1: only see that it works)
	@FAIRLEAD_TOFU=$$(bin/tofu-tool --pinned) && export FAIRLEAD_TOFU && $(GO) run ./bench $(if $(SMOKE),-smoke)

bench-aws: build bin/tofu-tool ## Measure how long the functions take to start, what they weigh, and what installs cost (SMOKE=1)
	@FAIRLEAD_REQUIRE_DYNAMODB=1 FAIRLEAD_REQUIRE_MOTO=1 FAIRLEAD_REQUIRE_SQS=1 \
		$(GO) test ./functions/internal/plane -run '^$$' -bench ColdStart -benchtime $(if $(SMOKE),1x,30x)
	@$(GO) run ./tools/functions -out bin/functions
	@FAIRLEAD_TOFU=$$(bin/tofu-tool --pinned) && export FAIRLEAD_TOFU && $(GO) run ./bench $(if $(SMOKE),-smoke,-force) -only aws

# What happens in a run follows from its seed; a run that fails says which it had.
SEED ?= 0

# 1,000 seeds take about two minutes on two cores.
SEEDS ?= 1000
ONLY ?=
REPORT ?=
simulate: ## Search for a counter-example under every fault (SEEDS=1000 SEED=0 ONLY='fault; …' REPORT=file.json)
	@$(GO) test ./test/sim -count=1 -timeout 0 -v -run '^TestNothingIsLostStrandedOrRepeated$$' \
		-args -seeds=$(SEEDS) -seed=$(SEED) -only="$(ONLY)" -report="$(abspath $(REPORT))"

# With WITHIN=20, those that 20 seeds find: half of them, in five minutes. With
# MISTAKE, one by its name.
WITHIN ?= 0
MISTAKE ?=
mutations: ## Plant one mistake after the other and see that the simulator finds each (WITHIN=seeds MISTAKE=name)
	@$(GO) test ./test/sim -count=1 -timeout 0 -v -run '^TestPlantedMistakesAreFound$$$(if $(MISTAKE),/^mistakes$$/^$(MISTAKE)$$)' -args -within=$(WITHIN)

DURATION ?= 5m
OUT ?=
MEASURE ?= true
soak: bin/tofu-tool ## Break everything around real deployments, then account for all of it (DURATION=5m SEED=n OUT=file.json)
	@FAIRLEAD_TOFU=$$(bin/tofu-tool --pinned) && export FAIRLEAD_TOFU && \
		$(GO) run ./test/soak -duration $(DURATION) -seed $(SEED) -measure=$(MEASURE) -out "$(OUT)"

VERSION ?= dev
ARCH ?= arm64
PUSH ?=
TOFU ?=
runner-image: ## Build the runner's image, and push it if PUSH names a repository (VERSION=dev ARCH=arm64 PUSH= TOFU=program)
	@$(GO) run ./infra/images/runner -version "$(VERSION)" -arch "$(ARCH)" -push "$(PUSH)" -tofu "$(TOFU)"

REGION ?=
ACCOUNT ?=
CUSTOMERS ?=
WITHOUT ?=
OPERATOR ?= operator
BUILD_RUNNER ?=
DRY_RUN ?=
YES ?=
deploy: build ## Bring the control plane into an AWS account (STAGE=prod REGION= ACCOUNT= CUSTOMERS= WITHOUT= BUILD_RUNNER= VERSION= DRY_RUN=1 YES=1)
	@$(GO) run ./tools/deploy -stage "$(or $(STAGE),prod)" -region "$(REGION)" -account "$(ACCOUNT)" -customers "$(CUSTOMERS)" -without "$(WITHOUT)" \
		-operator "$(OPERATOR)" -build-runner "$(BUILD_RUNNER)" -version "$(VERSION)" $(if $(DRY_RUN),-dry-run) $(if $(YES),-yes)

# A stage that is named holds for both; else make deploy is about prod, and a
# template that is only looked at about dev.
STAGE ?=
# The builds of the functions, a folder for each; without them, stand-ins.
FUNCTIONS ?= $(if $(wildcard bin/functions),bin/functions,infra/control/testdata/functions)
synth: ## Write the CloudFormation templates to bin/infra (STAGE=dev FUNCTIONS=folder); needs Node
	@command -v node >/dev/null || { echo "make synth needs Node: the CDK runs on it" >&2; exit 1; }
	@CDK_OUTDIR=bin/infra CDK_CONTEXT_JSON='{"stage":"$(or $(STAGE),dev)","functions":"$(FUNCTIONS)"}' $(GO) run ./infra
	@ls bin/infra/fairlead-$(or $(STAGE),dev).template.json bin/infra/fairlead-runner.json

site: ## Build the documentation with search into bin/site; needs Node
	@sh tools/site/build.sh

check: format vet lint generated imports ## Check format, vet, lint, generated files, the import table and the refused words

format:
	@unformatted=$$(gofmt -l .) && if [ -n "$$unformatted" ]; then \
		echo "run gofmt -w on:" >&2; echo "$$unformatted" >&2; exit 1; fi

# With the tag, as the runner's image and servers that serve clusters have it.
vet:
	@$(GO) vet ./...
	@$(GO) vet -tags clusters ./cmd/fairlead ./runner
	@for module in $(TOOL_MODULES); do $(GO) vet -C $$module ./... || exit 1; done

lint: bin/staticcheck
	@bin/staticcheck ./...
	@for module in $(TOOL_MODULES); do (cd $$module && $(CURDIR)/bin/staticcheck ./...) || exit 1; done

# What go generate writes must be what is there. In a checkout with changes of
# one's own, the diff before is the measure.
generated:
	@before=$$(git diff | git hash-object --stdin; git ls-files --others --exclude-standard) && \
		$(GO) generate ./... && \
		after=$$(git diff | git hash-object --stdin; git ls-files --others --exclude-standard) && \
		if [ "$$before" != "$$after" ]; then \
			echo "go generate changed files: commit what it wrote" >&2; git --no-pager diff --stat >&2; exit 1; fi

imports:
	@$(GO) test .

lines: ## Count the lines of product, test support, tests and documentation
	@$(GO) run ./tools/lines

generate: ## Write the generated files anew
	$(GO) generate ./...

clean: ## Remove what was built here; the caches of Go and of tools/tofu stay
	rm -rf bin
