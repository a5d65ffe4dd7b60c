# karpenter-gpu. `make help` lists the targets; a newcomer needs two: demo and test.

export GOTOOLCHAIN := go1.26.11
# One setting for every build: a change recompiles nearly everything. Only the
# agent and the race detector turn cgo on.
export CGO_ENABLED := 0
# NVML's C header warns by the page about its own deprecated names.
export CGO_CFLAGS := -w

BIN          := $(CURDIR)/bin
ASSETS       := $(if $(KUBEBUILDER_ASSETS),$(KUBEBUILDER_ASSETS),$(BIN)/controlplane)
VERSION      ?= $(shell git describe --tags --always 2>/dev/null || echo dev)
KARPENTER    := v1.15.0
TOOL         := go tool -modfile=go.tools.mod
LDFLAGS      := -s -w -X sigs.k8s.io/karpenter/pkg/operator.Version=$(KARPENTER)+gpu.$(VERSION)
# Where images go, and for which machines.
REGISTRY     ?= ghcr.io/karpenter-gpu
PLATFORMS    ?= linux/amd64,linux/arm64
SCENARIOS    ?= $(sort $(wildcard test/scenarios/*.yaml))
GO_SOURCES   := $(shell find cmd pkg \( -name '*.go' -o -path '*/data/*' -o -name '*.yaml' -o -name '*.tmpl' \) -not -name '*_test.go' -not -path '*/testdata/*' 2>/dev/null)
# Packages that run under the race detector: those that do not link the AWS SDK,
# whose instrumented build costs more than it finds (upstream and parity do), nor only compute in one
# goroutine for minutes (fleet). The detector multiplies memory: what the agent takes is measured
# by pkg/agent/nvml once more, with cgo and without it.
RACE         := ./pkg/gpu/... ./pkg/apis/... ./pkg/agent/... ./pkg/sim/node/... ./pkg/cloudprovider/...
# Suites that use envtest wait longer than its 20 s on a busy machine.
TEST_ENV     := KUBEBUILDER_ASSETS=$(ASSETS) KPGPU_REQUIRE_ASSETS=1 KUBEBUILDER_CONTROLPLANE_START_TIMEOUT=120s

.PHONY: e2e-node real-node kubelet help rules helm charts images build agent controlplane demo test test-unit test-race e2e bench bench-fleet generate verify lint presubmit clean check-go check-cc

help: ## Show this help
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / {printf "  %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

check-go:
	@command -v go >/dev/null || { echo "go was not found: install Go 1.26 or newer from https://go.dev/dl, then run make again"; exit 1; }

check-cc: check-go
	@command -v $$(go env CC) >/dev/null || { echo "the C compiler \"$$(go env CC)\" was not found: install gcc or clang (Debian: apt-get install gcc libc6-dev), or set CC, then run make again"; exit 1; }

build: $(BIN)/controller $(BIN)/stock-controller $(BIN)/sandbox $(BIN)/kubectl-gpupool ## Build the controller, the stock controller for comparison, the sandbox and the kubectl plugin

controlplane: check-go ## Build etcd, kube-apiserver, kube-scheduler, kube-controller-manager and KWOK into bin/ (once)
	@$(if $(KUBEBUILDER_ASSETS),echo "using the binaries in $(KUBEBUILDER_ASSETS)",sh tools/controlplane/build.sh $(BIN)/controlplane)

$(BIN)/controller: go.mod go.sum $(GO_SOURCES) | check-go
	go build -ldflags="$(LDFLAGS)" -o $@ ./cmd/controller

$(BIN)/stock-controller: go.mod go.sum | check-go
	go build -ldflags="-s -w -X sigs.k8s.io/karpenter/pkg/operator.Version=$(KARPENTER)" -o $@ github.com/aws/karpenter-provider-aws/cmd/controller

$(BIN)/kubectl-gpupool: go.mod go.sum $(GO_SOURCES) | check-go
	go build -ldflags="-s -w" -o $@ ./cmd/kubectl-gpupool

agent: check-cc ## Build the node agent, the one binary that needs a C compiler
	CGO_ENABLED=1 go build -ldflags="-s -w" -o $(BIN)/agent ./cmd/agent

$(BIN)/sandbox: go.mod go.sum $(GO_SOURCES) | check-go
	go build -ldflags="-s -w" -o $@ ./cmd/sandbox

demo: check-go controlplane build ## Play the burst scenario: local GPUs are full, the cloud takes over, and goes back to zero
	$(BIN)/sandbox run test/scenarios/burst.yaml

test: test-unit test-race rules ## All tests that need no sandbox run: unit, property, API server suites, race detector, alerts

test-unit: check-cc controlplane
	$(TEST_ENV) go test -timeout 20m ./...

test-race: check-cc controlplane
	CGO_ENABLED=1 $(TEST_ENV) go test -race -timeout 20m $$(go list $(RACE) | grep -vE '/(upstream|parity|fleet)$$')
	CGO_ENABLED=1 $(TEST_ENV) go test -timeout 10m -run StaysSmall ./pkg/agent/nvml

# The whole set comes with the charts, which install, upgrade and go back, and with an account of
# their RBAC rules, each of which some scenario must need. Neither is asked of a few scenarios.
WHOLE_SET    := $(filter file,$(origin SCENARIOS))

e2e: controlplane build $(if $(WHOLE_SET),charts) ## Play every scenario of test/scenarios on a fresh sandbox each, test charts and RBAC (SCENARIOS=file… plays some)
	$(BIN)/sandbox run $(SCENARIOS) --results $(BIN)/e2e.json
	$(if $(WHOLE_SET),$(BIN)/sandbox rules $(BIN)/e2e.json)

# The agent and the gate on a real kubelet and containerd: what it needs is installed first.
e2e-node: ## Show agent, gate and device plugins on one real node (Linux, root; installs Debian packages; skipped elsewhere)
	@sh test/node/prepare.sh; status=$$?; \
	if [ $$status -eq 3 ]; then exit 0; fi; \
	test $$status -eq 0 && $(MAKE) --no-print-directory real-node

real-node: helm controlplane kubelet agent $(BIN)/controller $(BIN)/guest
	KPGPU_NODE=1 KPGPU_BIN=$(BIN) $(TEST_ENV) go test -count=1 -timeout 30m -v ./test/node

kubelet: check-go ## Build the kubelet of the real node into bin/controlplane (once)
	@sh tools/controlplane/kubelet/build.sh $(BIN)/controlplane

$(BIN)/guest: go.mod go.sum $(GO_SOURCES) | check-go
	go build -ldflags="-s -w" -o $@ ./cmd/sandbox/guest

bench: check-go ## Run the benchmarks with their allocations
	go test -run '^$$' -bench . -benchmem ./pkg/gpu/... ./pkg/cloudprovider/...

bench-fleet: check-go ## Price stock, ours, greedy and the lower bound on the openb trace; writes bin/bench/fleet.json and a plot
	go run ./test/bench/fleet

rules: check-go ## Play the alerts on Prometheus' own code, and parse the queries of the dashboards
	go -C tools/prometheus test -count=1 ./...

helm: check-go ## Build Helm from its module into bin/
	@test -x $(BIN)/helm || go -C tools/helm build -ldflags="-s -w" -o $(BIN)/helm helm.sh/helm/v4/cmd/helm

charts: helm controlplane ## Test the charts, the upgrade from Karpenter and the way back with the real Helm
	@command -v kubectl >/dev/null || { echo "kubectl was not found, by which the commands of docs are run: install it, then run make again"; exit 1; }
	KPGPU_REQUIRE_HELM=1 KPGPU_REQUIRE_KUBECTL=1 $(TEST_ENV) go test -count=1 ./test/charts ./test/docs

images: ## Build both images for every platform with BuildKit (REGISTRY=…, VERSION=…, PUSH=1); docs/releasing.md tells what that needs
	@command -v docker >/dev/null || { echo "docker was not found: install it with buildx, or build the controller's image with ko, as docs/releasing.md tells"; exit 1; }
	docker buildx build --platform $(PLATFORMS) --file cmd/controller/Dockerfile --build-arg VERSION=$(KARPENTER)+gpu.$(VERSION) --tag $(REGISTRY)/controller:$(VERSION) $(if $(PUSH),--push) .
	docker buildx build --platform $(PLATFORMS) --file cmd/agent/Dockerfile --tag $(REGISTRY)/agent:$(VERSION) $(if $(PUSH),--push) .

generate: check-go helm ## Regenerate CRDs, deep copies and the reference of GPUPool
	go generate ./pkg/apis
	go test ./pkg/apis/internal/reference -update
	go test ./test/charts -run Generated -update
	go test ./test/observability -update

verify: generate ## Check that generated files, formatting and vet are clean
	@test -z "$$(gofmt -l cmd pkg test tools)" || { echo "gofmt needed:"; gofmt -l cmd pkg test tools; exit 1; }
	go vet ./...
	git diff --exit-code -- pkg/apis pkg/sim/rbac docs/reference charts

lint: check-go ## Run golangci-lint (built from source the first time)
	$(TOOL) golangci-lint run

presubmit: verify lint test ## What a change must pass before review

clean: ## Remove everything that was built
	rm -rf $(BIN)
