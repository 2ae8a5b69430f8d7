# tributary: `make run` serves the quickstart, `make test` passes with nothing but Go; the rest is for those who change it.

GO      ?= go
TOOLS   := .tools
VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
LDFLAGS := -s -w -X main.version=$(VERSION)
MODULES := . bench e2e packaging

.PHONY: help build run test check lint format race vulnerabilities release-test package soak fuzz e2e bench generate clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z0-9]+:.*## /{printf "  %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

build: ## build bin/tributary
	CGO_ENABLED=0 $(GO) build -trimpath -ldflags '$(LDFLAGS)' -o bin/tributary ./cmd/tributary

run: build ## serve testdata/quickstart on 127.0.0.1:16010
	bin/tributary serve -c testdata/tributary.yaml

test: ## run the unit, conformance and pipeline tests (needs only Go)
	CGO_ENABLED=0 $(GO) test -vet=off -p 4 -parallel 8 -timeout 30m ./...

check: lint vulnerabilities race release-test generate ## what CI runs: format, lint, known vulnerabilities, race tests, two releases of one commit, generated files clean
	@git diff --exit-code -- docs '*.golden' go.mod go.sum || { echo 'generated files differ: commit them'; exit 1; }

lint: $(TOOLS)/golangci-lint ## format and lint all modules, print the size and wording of the code
	@$(GO) test -count=1 -v -run '^TestWording$$' ./internal/layout | grep -v '^=== \|^PASS'
	@for m in $(MODULES); do (cd $$m && echo "lint $$m" && $(CURDIR)/$(TOOLS)/golangci-lint run --config $(CURDIR)/.golangci.yml ./...) || exit 1; done

format: $(TOOLS)/golangci-lint ## format the code
	@for m in $(MODULES); do (cd $$m && $(CURDIR)/$(TOOLS)/golangci-lint fmt --config $(CURDIR)/.golangci.yml ./...) || exit 1; done

race: ## run the tests with the race detector, but for what is only work (needs a C compiler)
	CGO_ENABLED=1 $(GO) test -race -short -timeout 30m ./...

vulnerabilities: $(TOOLS)/govulncheck ## look for known vulnerabilities in what is called; if their database cannot be reached, says so, and fails with STRICT=1
	@out=$$($(TOOLS)/govulncheck ./... 2>&1) && echo "$$out" | tail -n 1 || case "$$out" in \
	  *'fetching vulnerabilities'*) printf '\n%s\n\n' "NOT CHECKED for known vulnerabilities, whose database cannot be reached: $${out##*: }" >&2; [ "$(STRICT)" != 1 ];; \
	  *) echo "$$out"; exit 1;; esac

release-test: ## make a release twice, from two places, and compare it byte for byte (PACKAGING_NIGHTLY=1: also install it in a new Debian)
	$(GO) -C packaging test ./...

package: ## make archives, .deb, .rpm, an image, SBOMs and checksums in dist/
	$(GO) -C packaging run .

SOAK ?= 200
SOAK_TORTURES ?= 5000
SOAK_DURATION ?= 2m
SOAK_SEEDS ?= 10000
SOAK_RELOADS ?= 40
SOAK_DAYS ?= 1000
soak: build ## kill the writers of the state directory and of the history SOAK times each; torture the file source with SOAK_TORTURES operations; SOAK_SEEDS random histories of the ADS client, of clients of the xDS server, of what Envoys are told, and of a Consul that is wiped, away and slow; SOAK_RELOADS times 50 reloads; SOAK_DAYS days of the deletion guard; disturb the connections between tiers for SOAK_DURATION (again the same way: SOAK_SEED=n)
	TRIBUTARY_TEST_CRASHES=$(SOAK) $(GO) test -count=1 -timeout 30m -v -run TestKilledAtAnyMoment ./sources/lastgood ./internal/history
	TRIBUTARY_TEST_TORTURES=$(SOAK_TORTURES) TRIBUTARY_TEST_TORTURE_SEED=$(SOAK_SEED) $(GO) test -count=1 -timeout 60m -v -run TestTorture ./sources/file
	$(GO) test -count=1 -timeout 0 -run 'TestModel$$' ./adsc -model.seeds $(SOAK_SEEDS)
	XDS_MODEL_SEEDS=$(SOAK_SEEDS) $(GO) test -count=1 -timeout 0 -v -run TestModel ./server/xds
	ENVOY_MODEL_SEEDS=$$(($(SOAK_SEEDS) / 50)) $(GO) test -count=1 -timeout 0 -v -run 'TestHistory$$' ./server/envoy
	CONSUL_MODEL_SEEDS=$$(($(SOAK_SEEDS) / 20)) $(GO) test -count=1 -timeout 0 -v -run 'TestModel$$' ./sources/consul
	$(GO) test -count=1 -timeout 0 -run 'TestReloads$$' ./internal/relay -reloads 50 -reloads.seeds $(SOAK_RELOADS)
	TRIBUTARY_TEST_DAYS=$(SOAK_DAYS) $(GO) test -count=1 -timeout 30m -v -run TestSimulation ./sources/guard
	cd e2e && TRIBUTARY_BIN=$(CURDIR)/bin/tributary SOAK_DURATION=$(SOAK_DURATION) $(GO) test -count=1 -timeout 0 -v -run TestSoakTiers .

FUZZTIME ?= 30s
fuzz: ## run every fuzz target for FUZZTIME
	@for p in $$($(GO) list ./...); do \
	  for f in $$($(GO) test -list '^Fuzz' $$p | grep '^Fuzz'); do echo "$$p $$f"; $(GO) test -run '^$$' -fuzz "^$$f$$" -fuzztime $(FUZZTIME) -fuzzminimizetime 1x $$p || exit 1; done; done

e2e: build ## run the end-to-end tests against a real istiod and Envoy (builds them the first time)
	TRIBUTARY_BIN=$(CURDIR)/bin/tributary $(MAKE) -C e2e test

BENCH ?= -quick
bench: build ## compare the xDS engine to others (BENCH= for the whole matrix; BENCH="-page ../docs/performance.md" writes the tables of that page)
	cd bench && $(GO) run . $(BENCH)

generate: ## write the files that are made from code
	$(GO) generate ./...

clean: ## remove what was built
	rm -rf bin dist $(TOOLS)

$(TOOLS)/golangci-lint: internal/tools/go.mod internal/tools/go.sum
	$(GO) -C internal/tools build -o $(CURDIR)/$(TOOLS)/ github.com/golangci/golangci-lint/v2/cmd/golangci-lint
	@touch $@

$(TOOLS)/govulncheck: internal/tools/go.mod internal/tools/go.sum
	$(GO) -C internal/tools build -o $(CURDIR)/$(TOOLS)/ golang.org/x/vuln/cmd/govulncheck
	@touch $@
