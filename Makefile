# `make` alone lists the targets. Most targets need only Go and git. Versions of tools are
# pinned in modules below tools/, apart from the product's go.mod.

SHELL := /bin/sh
.DELETE_ON_ERROR:
.PHONY: kubernetes buildkit old-tools help demo dev build functions deploy test test-all test-tools test-aws session-policies record-calls bench bench-aws simulate mutations soak synth site runner-image runner-packages release vulnerabilities fuzz check generate clean format vet lint generated imports FORCE

GO ?= go
export GOWORK := off
# All targets build with the same settings, so that they share the build cache. They build
# without cgo, because only the race detector needs it. They build without the paths of
# this folder, so that another clone can use the same cache.
export CGO_ENABLED := 0
export GOFLAGS := $(filter-out -trimpath,$(GOFLAGS)) -trimpath
# The day selects the cases of a short test run (tools/shortrun).
export FAIRLEAD_TEST_DAY ?= $(shell date -u +%j | sed 's/^0*//')

# The tool prints a warning if TF_CLI_CONFIG_FILE names a missing file.
ifneq ($(TF_CLI_CONFIG_FILE),)
ifeq ($(wildcard $(TF_CLI_CONFIG_FILE)),)
unexport TF_CLI_CONFIG_FILE
endif
endif

BUILD := $(GO) build -ldflags '-s -w'
# The modules below tools/ with our own code.
TOOL_MODULES := tools/tofu

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: build bin/tofu-tool ## Start a control plane and deploy examples/shop: the product in a minute
	@FAIRLEAD_TOFU=$$(bin/tofu-tool) && export FAIRLEAD_TOFU && sh tools/demo.sh

dev: build bin/tofu-tool ## Run a control plane and a runner on this machine, until Ctrl-C
	@FAIRLEAD_TOFU=$$(bin/tofu-tool) && export FAIRLEAD_TOFU && exec bin/fairlead dev

build: bin/fairlead bin/fairlead-server bin/fairlead-registry bin/fairlead-runner bin/fairlead-step bin/fairlead-runner-clusters bin/plugins/kubernetes bin/plugins/images ## Build the CLI bin/fairlead, the server that it starts, the runner bin/fairlead-runner, the program of its light steps, the runner with every executor, the registry of images, and the plugins

functions: ## Build the functions for Lambda into bin/functions, and print their sizes
	@$(GO) run ./tools/functions -out bin/functions

# FORCE, because the go command decides what is up to date.
# The CLI is a light build: without the server and the clients of AWS, each command starts in
# a quarter of the time. For a command that needs them, it becomes bin/fairlead-server.
bin/fairlead: FORCE
	@$(BUILD) -tags light -o $@ ./cmd/fairlead
bin/fairlead-server: FORCE
	@$(BUILD) -tags clusters -o $@ ./cmd/fairlead
# The registry of images is a program of its own, because its library computes a password hash
# at each start: each command of the CLI would take 70 ms longer.
bin/fairlead-registry: FORCE
	@$(BUILD) -o $@ ./cmd/fairlead-registry
bin/fairlead-runner: FORCE
	@$(BUILD) -o $@ ./runner
# The agent starts it for jobs that need no client of a cloud: its process starts with a third
# of the CPU time.
bin/fairlead-step: FORCE
	@$(BUILD) -o $@ ./runner/fairlead-step
# The build in the runner's image. The other build omits the clients of clusters, because
# they would take a quarter of each agent's memory.
bin/fairlead-runner-clusters: FORCE
	@$(BUILD) -tags clusters -o $@ ./runner
# The plugin of manifests and charts is a program of its own, because no step should have
# the clients of Kubernetes and Helm in its memory.
bin/plugins/kubernetes: FORCE
	@$(BUILD) -o $@ ./runner/kubernetes
# The plugin of images is a program of its own for the same reason: the clients of registries
# and of Sigstore have 20 MB.
bin/plugins/images: FORCE
	@$(BUILD) -o $@ ./runner/images
bin/tofu-tool: FORCE
	@$(GO) build -C tools/tofu -o $(CURDIR)/$@ .
bin/gotestsum: FORCE
	@$(GO) build -C tools/gotestsum -o $(CURDIR)/$@ gotest.tools/gotestsum
bin/govulncheck: FORCE
	@$(GO) build -C tools/govulncheck -o $(CURDIR)/$@ golang.org/x/vuln/cmd/govulncheck
bin/staticcheck: FORCE
	@$(GO) build -C tools/lint -o $(CURDIR)/$@ honnef.co/go/tools/cmd/staticcheck

# Packages that use goroutines run with the race detector; of packages that are sequential
# or slow with it, only the concurrent tests do, or none (tools/testrun/packages.go). Tests use small sizes: 50
# seeds of the simulator, streams of 4 MiB, and, selected by the day of the year, one
# planted mistakes and one of several similar cases (tools/shortrun). Tests use only the
# pinned OpenTofu, and none from PATH. tools/testrun has the rules. With STRICT=1 a
# skipped test that tools/testrun does not list is a failure.
STRICT ?=
test: bin/tofu-tool bin/gotestsum ## Run every package's tests with small sizes (STRICT=1: fail on a skip): nine minutes
	@FAIRLEAD_TOFU=$$(bin/tofu-tool --pinned) && export FAIRLEAD_TOFU && \
		$(GO) run ./tools/testrun -short $(if $(STRICT),-strict)

# If these variables are set, a test fails if its server or tool is missing.
REQUIRED := FAIRLEAD_REQUIRE_DYNAMODB=1 FAIRLEAD_REQUIRE_MOTO=1 FAIRLEAD_REQUIRE_SQS=1 FAIRLEAD_REQUIRE_KUBERNETES=1 FAIRLEAD_REQUIRE_DOCKER=1 FAIRLEAD_REQUIRE_BUILDKIT=1 \
	FAIRLEAD_REQUIRE_CFN_LINT=1 FAIRLEAD_REQUIRE_CFN_GUARD=1 FAIRLEAD_REQUIRE_CHECKOV=1 FAIRLEAD_REQUIRE_IAM_SIMULATOR=1 FAIRLEAD_REQUIRE_SYSTEMD=1 FAIRLEAD_REQUIRE_CGROUP=1 \
	FAIRLEAD_REQUIRE_OLD_TOOLS=1 FAIRLEAD_REQUIRE_GCS=1 FAIRLEAD_REQUIRE_AZURITE=1 FAIRLEAD_REQUIRE_FIREWALL=1

test-all: build bin/tofu-tool bin/gotestsum test-tools old-tools ## Run every test in full, then five minutes of soak, then the fuzz targets: six hours, an hour and a half with FOR=1s
	@FAIRLEAD_TOFU=$$(bin/tofu-tool --pinned) && FAIRLEAD_AWS_PROVIDER=$$($(GO) run ./tools/awsprovider) && \
		export FAIRLEAD_TOFU FAIRLEAD_AWS_PROVIDER && \
		$(REQUIRED) FAIRLEAD_REQUIRE_AWS_PROVIDER=1 FAIRLEAD_TEST_IMAGE=1 $(GO) run ./tools/testrun -strict
	@$(MAKE) --no-print-directory soak DURATION=5m
	@$(MAKE) --no-print-directory fuzz

# The services of the public modules in infra/runnerstack/testdata/calls, beyond those of
# the examples.
RECORDED_SERVICES := acm,appautoscaling,autoscaling,cloudwatch,dynamodb,ecr,ecrpublic,efs,elasticache,elbv2,events,kms,lambda,pipes,ram,rds,redshift,route53,route53resolver,s3control,s3tables,s3vectors,scheduler,schemas,secretsmanager,servicediscovery,sfn,sns,ssm,wafv2

MODULES ?=
session-policies: ## Make the table of session policies (CLONE=git repository of hashicorp/terraform-provider-awscc)
	@$(GO) run ./tools/handlerpermissions -schemas $(CLONE) -provider "$$(cd tools/awsprovider/source && GOFLAGS= $(GO) mod download -json github.com/hashicorp/terraform-provider-aws | sed -n 's/.*"Dir": "\(.*\)".*/\1/p')"

record-calls: bin/tofu-tool ## Record the calls to AWS of public modules (CLONES=folder with their git repositories): ten minutes
	@$(GO) run ./tools/recordcalls -clones $(CLONES) -tofu "$$(bin/tofu-tool --pinned)" \
		-provider "$$($(GO) run ./tools/awsprovider -services $(RECORDED_SERVICES))" $(MODULES)

test-tools: kubernetes buildkit ## Install the tools of tests besides Go: Debian packages with apt, the Kubernetes API server, and BuildKit
	@sh tools/testtools.sh

# If a server or a tool is missing, the target fails with a message.
test-aws: bin/tofu-tool ## Deploy an app through the synthesized stacks, on servers compatible with AWS's
	@FAIRLEAD_TOFU=$$(bin/tofu-tool --pinned) FAIRLEAD_TEST_IMAGE=1 FAIRLEAD_REQUIRE_DYNAMODB=1 FAIRLEAD_REQUIRE_MOTO=1 FAIRLEAD_REQUIRE_SQS=1 FAIRLEAD_REQUIRE_IAM_SIMULATOR=1 \
		$(GO) test -timeout 20m ./functions/... ./infra/... ./pkg/queue/sqs ./pkg/blob/s3 ./pkg/joblog/cloudwatch ./pkg/joblog/dynamo ./pkg/artifact/ecr ./pkg/store/dynamo ./pkg/seal/kms ./pkg/eventbus/... ./pkg/identity/awsiam/...

old-tools: ## Build the oldest supported Terraform and OpenTofu, once: eight minutes on two cores
	@$(GO) run ./tools/oldtools

kubernetes: ## Build the Kubernetes API server that tests use, once: six minutes on two cores
	@$(GO) run ./tools/kubeserver

buildkit: ## Build BuildKit and ko, with which tests build images, once: six minutes on two cores
	@$(GO) run ./tools/buildkitd

# With SMOKE=1 every section runs once with small counts: two minutes.
SMOKE ?=
bench: build bin/tofu-tool ## Measure; print a table and write bench/results.json (SMOKE=1: only check that it works)
	@FAIRLEAD_TOFU=$$(bin/tofu-tool --pinned) && export FAIRLEAD_TOFU && $(GO) run ./bench $(if $(SMOKE),-smoke)

bench-aws: build bin/tofu-tool ## Measure the start times and sizes of the functions, and the costs of installs (SMOKE=1)
	@FAIRLEAD_REQUIRE_DYNAMODB=1 FAIRLEAD_REQUIRE_MOTO=1 FAIRLEAD_REQUIRE_SQS=1 \
		$(GO) test ./functions/internal/plane -run '^$$' -bench ColdStart -benchtime $(if $(SMOKE),1x,30x)
	@$(GO) run ./tools/functions -out bin/functions
	@FAIRLEAD_TOFU=$$(bin/tofu-tool --pinned) && export FAIRLEAD_TOFU && \
		FAIRLEAD_REQUIRE_MOTO=1 FAIRLEAD_REQUIRE_DYNAMODB=1 FAIRLEAD_REQUIRE_SQS=1 $(if $(SMOKE),,FAIRLEAD_BENCH_USAGE=$(CURDIR)/bench/aws-usage.json) \
		$(GO) test ./functions/internal/awstest -run '^$$' -bench 'Usage$$' -benchtime 1x -timeout 20m && \
		FAIRLEAD_REQUIRE_DYNAMODB=1 $(if $(SMOKE),,FAIRLEAD_BENCH_LOG=$(CURDIR)/bench/aws-log.json) $(GO) test ./bench -run '^$$' -bench JobLog -benchtime 1x && \
		$(GO) run ./bench $(if $(SMOKE),-smoke,-force) -only aws
	@FAIRLEAD_TOFU=$$(bin/tofu-tool --pinned) FAIRLEAD_AWS_PROVIDER=$$($(GO) run ./tools/awsprovider) FAIRLEAD_REQUIRE_MOTO=1 FAIRLEAD_REQUIRE_DYNAMODB=1 FAIRLEAD_REQUIRE_SQS=1 \
		$(if $(SMOKE),,FAIRLEAD_BENCH_PROVIDERS=$(CURDIR)/bench/aws-providers.json FAIRLEAD_BENCH_TIMES=$(CURDIR)/bench/aws-times.json) \
		$(GO) test ./functions/internal/awstest -run '^$$' -bench '(Times|Providers)$$$(if $(SMOKE),/few)' -benchtime $(if $(SMOKE),1x,9x) -timeout 60m
	@FAIRLEAD_TOFU=$$(bin/tofu-tool --pinned) FAIRLEAD_REQUIRE_MOTO=1 FAIRLEAD_REQUIRE_DYNAMODB=1 FAIRLEAD_REQUIRE_SQS=1 \
		$(if $(SMOKE),,FAIRLEAD_BENCH_UNCHANGED=$(CURDIR)/bench/aws-unchanged.json) \
		$(GO) test ./functions/internal/awstest -run '^$$' -bench 'Unchanged$$' -benchtime $(if $(SMOKE),1x,9x) -timeout 20m
# A start of a task takes 30 s here, and eight jobs in turn wait for theirs: five minutes each
# time. With -short it takes a second.
	@FAIRLEAD_TOFU=$$(bin/tofu-tool --pinned) FAIRLEAD_REQUIRE_MOTO=1 FAIRLEAD_REQUIRE_DYNAMODB=1 FAIRLEAD_REQUIRE_SQS=1 \
		$(if $(SMOKE),,FAIRLEAD_BENCH_CHAIN=$(CURDIR)/bench/aws-chain.json) \
		$(GO) test ./functions/internal/awstest -run '^$$' -bench 'Chain$$' -benchtime $(if $(SMOKE),1x,3x) $(if $(SMOKE),-short) -timeout 40m
	@$(GO) test ./bench -count=1 -run '^TestTimesOfTheStacksMeetTheirGoals$$'

# A run is determined by its seed; a failing run prints its seed.
SEED ?= 0

# 1,000 seeds take about two minutes on two cores.
SEEDS ?= 1000
ONLY ?=
REPORT ?=
simulate: ## Search for a counter-example under every fault (SEEDS=1000 SEED=0 ONLY='fault; …' REPORT=file.json)
	@$(GO) test ./test/sim -count=1 -timeout 0 -v -run '^TestNothingIsLostStrandedOrRepeated$$' \
		-args -seeds=$(SEEDS) -seed=$(SEED) -only="$(ONLY)" -report="$(abspath $(REPORT))"

# With WITHIN=20 the target plants only the mistakes that 20 seeds find. They are half of
# all mistakes and take five minutes. With MISTAKE it plants only the mistake of this name.
WITHIN ?= 0
MISTAKE ?=
mutations: ## Plant one mistake after the other and check that the simulator finds each (WITHIN=seeds MISTAKE=name)
	@$(GO) test ./test/sim -count=1 -timeout 0 -v -run '^TestPlantedMistakesAreFound$$$(if $(MISTAKE),/^mistakes$$/^$(MISTAKE)$$)' -args -within=$(WITHIN)

# A failing input goes into testdata/fuzz of its package: commit it with the fix.
FOR ?= 10m
FUZZ ?=
fuzz: ## Fuzz every parser of foreign bytes, one after the other: four and a half hours (FOR=10m for each, FUZZ=part of a package or name)
	@$(GO) run ./tools/fuzz -for $(FOR) -only "$(FUZZ)"

DURATION ?= 5m
OUT ?=
MEASURE ?= true
soak: bin/tofu-tool ## Inject faults into real deployments, then check all results (DURATION=5m SEED=n OUT=file.json)
	@FAIRLEAD_TOFU=$$(bin/tofu-tool --pinned) && export FAIRLEAD_TOFU && \
		$(GO) run ./test/soak -duration $(DURATION) -seed $(SEED) -measure=$(MEASURE) -out "$(OUT)"

VERSION ?= dev
ARCH ?= arm64
PUSH ?=
TOFU ?=
WITH_SHELL ?=
WITH_GO ?=
runner-image: ## Build the runner's image, and push it if PUSH names a repository (VERSION=dev ARCH=arm64 PUSH= TOFU=program WITH_SHELL=1 WITH_GO=1)
	@$(GO) run ./infra/images/runner -version "$(VERSION)" -arch "$(ARCH)" -push "$(PUSH)" -tofu "$(TOFU)" $(if $(filter-out 0,$(WITH_SHELL)),-shell) $(if $(filter-out 0,$(WITH_GO)),-go)

runner-packages: ## Pin the newest packages of Debian for the image with a shell
	@$(GO) run ./infra/images/runner -repin infra/images/internal/image/packages.txt

KEY ?=
ARCHS ?= amd64,arm64
release: ## Build the files of a release into bin/release, twice the same bytes (VERSION=v1.2.3 KEY=file.pem ARCHS=amd64,arm64 TOFU=folder DIRTY=1); needs Node
	@$(GO) run ./tools/release -version "$(filter-out dev,$(VERSION))" -key "$(KEY)" -archs "$(ARCHS)" -tofu "$(TOFU)" $(if $(DIRTY),-dirty)

# govulncheck ends with 3 if it finds something, and with 1 if it cannot work: most often
# because no network reaches the database.
DB ?= https://vuln.go.dev
vulnerabilities: bin/govulncheck ## Look up the known vulnerabilities of the code that is used (DB=https://vuln.go.dev STRICT=1: fail without the database)
	@bin/govulncheck -db "$(DB)" -tags clusters ./...; code=$$?; \
		if [ $$code -eq 1 ] && [ -z "$(STRICT)" ]; then echo "NOT CHECKED: see the error above; STRICT=1 makes it a failure" >&2; code=0; fi; \
		exit $$code

REGION ?=
ACCOUNT ?=
CUSTOMERS ?=
WITHOUT ?=
OPERATOR ?= operator
BUILD_RUNNER ?=
DIRECT_LAUNCH ?=
ALARM_EMAIL ?=
MONTHLY_BUDGET ?=
TABLE ?=
SIGNS_WITH ?=
SPARE_REGION ?=
DRY_RUN ?=
YES ?=
deploy: build ## Deploy the control plane to an AWS account (STAGE=prod REGION= ACCOUNT= CUSTOMERS= WITHOUT= BUILD_RUNNER= DIRECT_LAUNCH= ALARM_EMAIL= MONTHLY_BUDGET= TABLE= SIGNS_WITH= SPARE_REGION= VERSION= WITH_SHELL=0 ALL_AT_ONCE=1 IGNORE_POLICIES=1 DRY_RUN=1 YES=1)
	@$(GO) run ./tools/deploy -stage "$(or $(STAGE),prod)" -region "$(REGION)" -account "$(ACCOUNT)" -customers "$(CUSTOMERS)" -without "$(WITHOUT)" \
		-operator "$(OPERATOR)" -build-runner "$(BUILD_RUNNER)" -direct-launch "$(DIRECT_LAUNCH)" -alarm-email "$(ALARM_EMAIL)" -monthly-budget "$(MONTHLY_BUDGET)" -table "$(TABLE)" -signs-with "$(SIGNS_WITH)" -spare-region "$(SPARE_REGION)" -version "$(VERSION)" $(if $(filter 0,$(WITH_SHELL)),-no-shell) $(if $(ALL_AT_ONCE),-all-at-once) $(if $(IGNORE_POLICIES),-ignore-policies) $(if $(DRY_RUN),-dry-run) $(if $(YES),-yes)

# The stage of make deploy and make synth. By default deploy uses prod and synth uses dev.
STAGE ?=
# The folder of the functions' builds; without builds, placeholder files.
FUNCTIONS ?= $(if $(wildcard bin/functions),bin/functions,infra/control/testdata/functions)
synth: ## Write the CloudFormation templates to bin/infra (STAGE=dev FUNCTIONS=folder); needs Node
	@command -v node >/dev/null || { echo "make synth needs Node, because the CDK runs on Node" >&2; exit 1; }
	@CDK_OUTDIR=bin/infra CDK_CONTEXT_JSON='{"stage":"$(or $(STAGE),dev)","functions":"$(FUNCTIONS)"}' $(GO) run ./infra
	@ls bin/infra/fairlead-$(or $(STAGE),dev).template.json bin/infra/fairlead-runner.yaml

site: ## Build the documentation with search into bin/site; needs Node
	@sh tools/site/build.sh

check: format vet lint generated imports ## Check format, vet, lint, generated files, the import table and the refused words

format:
	@unformatted=$$(gofmt -l .) && if [ -n "$$unformatted" ]; then \
		echo "run gofmt -w on:" >&2; echo "$$unformatted" >&2; exit 1; fi

# The runner's image and bin/fairlead-server are built with the tag clusters.
vet:
	@$(GO) vet ./...
	@$(GO) vet -tags clusters ./cmd/fairlead ./runner
	@$(GO) build -tags light -o /dev/null ./cmd/fairlead
	@for module in $(TOOL_MODULES); do $(GO) vet -C $$module ./... || exit 1; done

lint: bin/staticcheck
	@bin/staticcheck ./...
	@for module in $(TOOL_MODULES); do (cd $$module && $(CURDIR)/bin/staticcheck ./...) || exit 1; done

# go generate must not change a file. The rule compares the diffs before and after, so that
# it also works with uncommitted changes.
generated:
	@before=$$(git diff | git hash-object --stdin; git ls-files --others --exclude-standard) && \
		$(GO) generate ./... && \
		after=$$(git diff | git hash-object --stdin; git ls-files --others --exclude-standard) && \
		if [ "$$before" != "$$after" ]; then \
			echo "go generate changed files: commit them" >&2; git --no-pager diff --stat >&2; exit 1; fi

imports:
	@$(GO) test .

lines: ## Count the lines of product, test support, tests and documentation
	@$(GO) run ./tools/lines

generate: ## Write the generated files again
	$(GO) generate ./...

clean: ## Remove bin; the caches of Go and of tools/tofu stay
	rm -rf bin
